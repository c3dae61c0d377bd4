"""A graph as text for other programs: DOT for Graphviz, and Mermaid.

Names come from tenants, so they go nowhere but into quoted labels, with everything escaped
that could end the quotes or mean something inside them.
"""

from collections.abc import Iterator, Mapping, Sequence

from duly.cli.text import clean
from duly.client.graph_shapes import GraphPart

FILLS = {
    "done": "#b7e1c0",
    "failed": "#f2b8b5",
    "running": "#b5dcf2",
    "waiting": "#f7e6a8",
    "scheduled": "#e3ccf0",
    "blocked": "#e3ccf0",
    "paused": "#dddddd",
    "cancelled": "#dddddd",
}
PLAIN = frozenset(" _-./,()")
LONGEST = 100


def upstreams_of(part: GraphPart) -> Iterator[tuple[str, str]]:
    """Yield the ids of what a task waits for, each with how that must end."""
    for one in part["depends_on"]:
        yield (one, "success") if isinstance(one, str) else (one["task"], one["on"])


def label_of(part: GraphPart) -> str:
    """Return what a task is called: by its ref, its name or its id."""
    text = clean(part["ref"] or part["name"] or part["id"])
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def as_dot(parts: Sequence[GraphPart]) -> Iterator[str]:
    """Yield the lines of a graph for Graphviz."""
    known = _names(parts)
    yield "digraph {"
    yield '  node [shape=box, style="rounded,filled", fontname="sans-serif"];'
    for part in parts:
        fill = FILLS.get(part["status"], "#ffffff")
        label = f"{_dot(label_of(part))}\\n{_dot(part['status'])}"
        yield f'  {known[part["id"]]} [label="{label}", fillcolor="{fill}"];'
    for part in parts:
        for upstream, on in upstreams_of(part):
            if upstream in known:
                said = "" if on == "success" else f' [label="{_dot(on)}", style=dashed]'
                yield f"  {known[upstream]} -> {known[part['id']]}{said};"
    yield "}"


def as_mermaid(parts: Sequence[GraphPart]) -> Iterator[str]:
    """Yield the lines of a graph for Mermaid."""
    known = _names(parts)
    yield "flowchart TD"
    for part in parts:
        label = f"{_mermaid(label_of(part))}<br/>{_mermaid(part['status'])}"
        status = part["status"]
        styled = f":::{status}" if status in FILLS else ""
        yield f'  {known[part["id"]]}["{label}"]{styled}'
    for part in parts:
        for upstream, on in upstreams_of(part):
            if upstream in known:
                arrow = "-->" if on == "success" else f'-. "{_mermaid(on)}" .->'
                yield f"  {known[upstream]} {arrow} {known[part['id']]}"
    for status in sorted({part["status"] for part in parts} & FILLS.keys()):
        yield f"  classDef {status} fill:{FILLS[status]},color:#000"


def _names(parts: Sequence[GraphPart]) -> Mapping[str, str]:
    """Return what tasks are called inside of a drawing: nothing that anybody chose."""
    return {part["id"]: f"t{place}" for place, part in enumerate(parts, 1)}


def _dot(text: str) -> str:
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


def _mermaid(text: str) -> str:
    """Return `text` with all but letters, digits and a few signs by their numbers."""
    return "".join(
        sign if sign.isalnum() or sign in PLAIN else f"#{ord(sign)};" for sign in clean(text)
    )
