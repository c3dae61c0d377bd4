"""Draws a graph as SVG: layers of boxes from top to bottom, each task below its upstreams.

Every task is drawn once and nothing recurses, so a thousand tasks work too. A layer that is too
wide wraps into the next row. Names come from tenants, so they are escaped everywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from duly.cli.graphs.graph_text import FILLS, label_of, upstreams_of
from duly.cli.output.text import clean
from duly.client.shapes.graph_shapes import GraphTask

BOX = (168, 44)
GAP = (20, 56)
MARGIN = 20
MAX_BOXES_PER_ROW = 24
"""The rest of a wider layer wraps into the next row."""
ORDERING_SWEEPS = 4
MAX_LABEL_CHARACTERS = 23
"""Characters of a name that fit into a box; the tooltip has the whole name."""
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


class Position(NamedTuple):
    """The middle of a box's upper side."""

    x: float
    y: float


def as_svg(tasks: Sequence[GraphTask], title: str) -> Iterator[str]:
    """Yield the lines of the SVG document."""
    by_id = {task["id"]: task for task in tasks}
    upstreams_by_id = {
        id_: [(upstream, on) for upstream, on in upstreams_of(task) if upstream in by_id]
        for id_, task in by_id.items()
    }
    positions = _positions(_order_layers(_layers(upstreams_by_id), upstreams_by_id))
    edges = [
        (positions[upstream], positions[id_], on)
        for id_, upstreams in upstreams_by_id.items()
        for upstream, on in upstreams
    ]
    right = max((position.x for position in positions.values()), default=0) + BOX[0] / 2
    width = max([right, *(_detour_x(start, end) + MARGIN for start, end, _ in edges)]) + MARGIN
    height = max((position.y for position in positions.values()), default=0) + BOX[1] + MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img">'
    )
    yield f"<title>{_escape(title)}</title><style>{STYLE}</style><defs>{ARROW}</defs>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    for start, end, on in edges:
        yield _edge(start, end, on)
    for id_, task in by_id.items():
        yield _box(task, positions[id_])
    yield "</svg>"


def _layers(upstreams_by_id: Mapping[str, Sequence[tuple[str, str]]]) -> list[list[str]]:
    """Group the tasks by the length of their longest path from a root."""
    below: dict[str, list[str]] = {id_: [] for id_ in upstreams_by_id}
    missing = {id_: len(upstreams) for id_, upstreams in upstreams_by_id.items()}
    for id_, upstreams in upstreams_by_id.items():
        for upstream, _ in upstreams:
            below[upstream].append(id_)
    depth = dict.fromkeys(upstreams_by_id, 0)
    order = [id_ for id_, count in missing.items() if not count]
    for id_ in order:
        for dependant in below[id_]:
            depth[dependant] = max(depth[dependant], depth[id_] + 1)
            missing[dependant] -= 1
            if not missing[dependant]:
                order.append(dependant)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for id_ in upstreams_by_id:
        layers[depth[id_]].append(id_)
    return layers


def _order_layers(
    layers: list[list[str]], upstreams_by_id: Mapping[str, Sequence[tuple[str, str]]]
) -> list[list[str]]:
    """Order the tasks of each layer by the mean position of their neighbours (barycenter)."""
    upstream_ids: dict[str, list[str]] = {
        id_: [upstream for upstream, _ in upstreams] for id_, upstreams in upstreams_by_id.items()
    }
    downstream: dict[str, list[str]] = {id_: [] for id_ in upstreams_by_id}
    for id_, upstreams in upstream_ids.items():
        for upstream in upstreams:
            downstream[upstream].append(id_)
    offset = {
        id_: (index + 0.5) / len(layer) for layer in layers for index, id_ in enumerate(layer)
    }
    for sweep in range(ORDERING_SWEEPS):
        linked = upstream_ids if sweep % 2 == 0 else downstream
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            means = {
                id_: _mean([offset[other] for other in linked[id_]], offset[id_]) for id_ in layer
            }
            layer.sort(key=means.__getitem__)
            offset |= {id_: (index + 0.5) / len(layer) for index, id_ in enumerate(layer)}
    return layers


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _positions(layers: Sequence[Sequence[str]]) -> dict[str, Position]:
    """Return the position of each task; every row is centred."""
    rows = [
        layer[first : first + MAX_BOXES_PER_ROW]
        for layer in layers
        for first in range(0, len(layer), MAX_BOXES_PER_ROW)
    ]
    step = BOX[0] + GAP[0]
    middle = MARGIN + max(map(len, rows), default=0) * step / 2
    return {
        id_: Position(
            middle + (index - (len(row) - 1) / 2) * step, MARGIN + number * (BOX[1] + GAP[1])
        )
        for number, row in enumerate(rows)
        for index, id_ in enumerate(row)
    }


def _detour_x(start: Position, end: Position) -> float:
    """Return the x of a detour around boxes straight between the two; 0 if none is needed."""
    rows = round((end.y - start.y) / (BOX[1] + GAP[1]))
    if rows < 2 or abs(start.x - end.x) >= BOX[0] / 2:
        return 0
    return max(start.x, end.x) + BOX[0] / 2 + 16 + 12 * min(rows, 8)


def _edge(start: Position, end: Position, on: str) -> str:
    top, bottom = start.y + BOX[1], end.y
    bend = max(GAP[1] / 2, (bottom - top) / 3)
    path_data = (
        f"M{start.x:g} {top:g}C{start.x:g} {top + bend:g} {end.x:g} {bottom - bend:g} "
        f"{end.x:g} {bottom:g}"
    )
    x, y = end.x + 30, bottom - 6
    if out := _detour_x(start, end):
        half, middle = BOX[0] / 2, BOX[1] / 2
        path_data = (
            f"M{start.x + half:g} {start.y + middle:g}C{out:g} {top:g} {out:g} {bottom:g} "
            f"{end.x + half:g} {end.y + middle:g}"
        )
        x, y = (3 * out + end.x + half) / 4 + 22, (top + bottom) / 2
    if on == "success":
        return f'<path d="{path_data}"/>'
    label = f'<text class="on" x="{x:g}" y="{y:g}">{_escape(on)}</text>'
    return f'<path class="o" d="{path_data}"/>{label}'


def _box(task: GraphTask, position: Position) -> str:
    label, status = label_of(task), task["status"]
    label_text = (
        label if len(label) <= MAX_LABEL_CHARACTERS else f"{label[: MAX_LABEL_CHARACTERS - 1]}…"
    )
    fill, stroke = FILLS.get(status, "#ffffff"), STROKES.get(status, "#8a8a8a")
    whole = _escape(f"{label} ({task['id']}): {status}")
    return (
        f"<g><title>{whole}</title>"
        f'<rect x="{position.x - BOX[0] / 2:g}" y="{position.y:g}" '
        f'width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{position.x:g}" y="{position.y + 19:g}">{_escape(label_text)}</text>'
        f'<text class="s" x="{position.x:g}" y="{position.y + 35:g}">{_escape(status)}</text></g>'
    )


def _escape(text: str) -> str:
    """Escape text for XML, which does not allow U+FFFE and U+FFFF."""
    return escape(clean(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))
