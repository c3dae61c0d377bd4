"""A graph as a picture: layers of boxes from top to bottom, each task below its upstreams.

Nothing is drawn twice and nothing recurses, so a thousand tasks are a picture, too. A layer
that is too wide goes on in the next row. Names come from tenants: they are text, and nothing
else, wherever they stand.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from duly.cli.graph_text import FILLS, label_of, upstreams_of
from duly.cli.text import clean
from duly.client.graph_shapes import GraphPart

BOX = (168, 44)
GAP = (20, 56)
MARGIN = 20
WIDEST = 24
"""Boxes beside each other; the rest of a layer goes below."""
SWEEPS = 4
SHOWN = 23
"""Characters of a name that fit into a box; the whole of it shows up under the pointer."""
STROKES = {"failed": "#b3261e", "running": "#0b6aa2", "done": "#2e7d42"}
STYLE = (
    "text{font-family:sans-serif;font-size:13px;text-anchor:middle;fill:#1c1c1c}"
    ".s{font-size:11px;fill:#444}.on{font-size:10px;fill:#666}"
    "path{fill:none;stroke:#8a8a8a;stroke-width:1.2;marker-end:url(#arrow)}.o{stroke-dasharray:4 3}"
    "rect{stroke-width:1.5}"
)
ARROW = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#8a8a8a;stroke:none"/></marker>'
)


class Spot(NamedTuple):
    """The middle of the upper side of a box."""

    x: float
    y: float


def as_svg(parts: Sequence[GraphPart], title: str) -> Iterator[str]:
    """Yield the lines of a picture."""
    known = {part["id"]: part for part in parts}
    above = {
        one: [(id_, on) for id_, on in upstreams_of(part) if id_ in known]
        for one, part in known.items()
    }
    spots = _spots(_arranged(_layers(above), above))
    edges = [(spots[id_], spots[one], on) for one, ones in above.items() for id_, on in ones]
    right = max((spot.x for spot in spots.values()), default=0) + BOX[0] / 2
    width = max([right, *(_around(start, end) + MARGIN for start, end, _ in edges)]) + MARGIN
    height = max((spot.y for spot in spots.values()), default=0) + BOX[1] + MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img">'
    )
    yield f"<title>{_text(title)}</title><style>{STYLE}</style><defs>{ARROW}</defs>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    for start, end, on in edges:
        yield _edge(start, end, on)
    for one, part in known.items():
        yield _box(part, spots[one])
    yield "</svg>"


def _layers(above: Mapping[str, Sequence[tuple[str, str]]]) -> list[list[str]]:
    """Return the tasks by how many stand above them on the longest way."""
    below: dict[str, list[str]] = {one: [] for one in above}
    left = {one: len(upstreams) for one, upstreams in above.items()}
    for one, upstreams in above.items():
        for upstream, _ in upstreams:
            below[upstream].append(one)
    depth = dict.fromkeys(above, 0)
    order = [one for one, count in left.items() if not count]
    for one in order:
        for dependant in below[one]:
            depth[dependant] = max(depth[dependant], depth[one] + 1)
            left[dependant] -= 1
            if not left[dependant]:
                order.append(dependant)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for one in above:
        layers[depth[one]].append(one)
    return layers


def _arranged(
    layers: list[list[str]], above: Mapping[str, Sequence[tuple[str, str]]]
) -> list[list[str]]:
    """Return the layers so that tasks stand near those that they are linked with."""
    near: dict[str, list[str]] = {one: [id_ for id_, _ in ones] for one, ones in above.items()}
    under: dict[str, list[str]] = {one: [] for one in above}
    for one, ones in near.items():
        for upstream in ones:
            under[upstream].append(one)
    place = {one: (at + 0.5) / len(layer) for layer in layers for at, one in enumerate(layer)}
    for sweep in range(SWEEPS):
        linked = near if sweep % 2 == 0 else under
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = {
                one: _mean([place[other] for other in linked[one]], place[one]) for one in layer
            }
            layer.sort(key=wanted.__getitem__)
            place |= {one: (at + 0.5) / len(layer) for at, one in enumerate(layer)}
    return layers


def _mean(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _spots(layers: Sequence[Sequence[str]]) -> dict[str, Spot]:
    """Return where each task is drawn, every row in the middle."""
    rows = [
        layer[first : first + WIDEST] for layer in layers for first in range(0, len(layer), WIDEST)
    ]
    step = BOX[0] + GAP[0]
    middle = MARGIN + max(map(len, rows), default=0) * step / 2
    return {
        one: Spot(middle + (at - (len(row) - 1) / 2) * step, MARGIN + number * (BOX[1] + GAP[1]))
        for number, row in enumerate(rows)
        for at, one in enumerate(row)
    }


def _around(start: Spot, end: Spot) -> float:
    """Return how far to the right an edge must go round what stands straight between; else 0."""
    rows = round((end.y - start.y) / (BOX[1] + GAP[1]))
    if rows < 2 or abs(start.x - end.x) >= BOX[0] / 2:
        return 0
    return max(start.x, end.x) + BOX[0] / 2 + 16 + 12 * min(rows, 8)


def _edge(start: Spot, end: Spot, on: str) -> str:
    top, bottom = start.y + BOX[1], end.y
    bend = max(GAP[1] / 2, (bottom - top) / 3)
    way = (
        f"M{start.x:g} {top:g}C{start.x:g} {top + bend:g} {end.x:g} {bottom - bend:g} "
        f"{end.x:g} {bottom:g}"
    )
    x, y = end.x + 30, bottom - 6
    if out := _around(start, end):
        half, middle = BOX[0] / 2, BOX[1] / 2
        way = (
            f"M{start.x + half:g} {start.y + middle:g}C{out:g} {top:g} {out:g} {bottom:g} "
            f"{end.x + half:g} {end.y + middle:g}"
        )
        x, y = (3 * out + end.x + half) / 4 + 22, (top + bottom) / 2
    if on == "success":
        return f'<path d="{way}"/>'
    return f'<path class="o" d="{way}"/><text class="on" x="{x:g}" y="{y:g}">{_text(on)}</text>'


def _box(part: GraphPart, spot: Spot) -> str:
    label, status = label_of(part), part["status"]
    shown = label if len(label) <= SHOWN else f"{label[: SHOWN - 1]}…"
    fill, stroke = FILLS.get(status, "#ffffff"), STROKES.get(status, "#8a8a8a")
    whole = _text(f"{label} ({part['id']}): {status}")
    return (
        f"<g><title>{whole}</title>"
        f'<rect x="{spot.x - BOX[0] / 2:g}" y="{spot.y:g}" width="{BOX[0]}" height="{BOX[1]}" '
        f'rx="6" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{spot.x:g}" y="{spot.y + 19:g}">{_text(shown)}</text>'
        f'<text class="s" x="{spot.x:g}" y="{spot.y + 35:g}">{_text(status)}</text></g>'
    )


def _text(text: str) -> str:
    """Return what nobody takes for more than text; XML knows two characters less than Unicode."""
    return escape(clean(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))
