"""Writes a graph as DOT for Graphviz, and as Mermaid.

Names come from tenants, so they appear only in quoted labels, with every special character
escaped.
"""

from collections.abc import Iterator, Mapping, Sequence

from duly.cli.output.text import clean
from duly.client.shapes.graph_shapes import GraphTask

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
UNESCAPED = frozenset(" _-./,()")
MAX_LABEL_CHARACTERS = 100


def upstreams_of(task: GraphTask) -> Iterator[tuple[str, str]]:
    """Yield the ids of a task's upstreams, each with the condition on its end."""
    for dependency in task["depends_on"]:
        yield (
            (dependency, "success")
            if isinstance(dependency, str)
            else (dependency["task"], dependency["on"])
        )


def label_of(task: GraphTask) -> str:
    """Return the display name of a task: its ref, name or id."""
    text = clean(task["ref"] or task["name"] or task["id"])
    return text if len(text) <= MAX_LABEL_CHARACTERS else f"{text[:MAX_LABEL_CHARACTERS]}…"


def as_dot(tasks: Sequence[GraphTask]) -> Iterator[str]:
    """Yield the lines of a DOT document."""
    names = _node_names(tasks)
    yield "digraph {"
    yield '  node [shape=box, style="rounded,filled", fontname="sans-serif"];'
    for task in tasks:
        fill = FILLS.get(task["status"], "#ffffff")
        label = f"{_escape_dot(label_of(task))}\\n{_escape_dot(task['status'])}"
        yield f'  {names[task["id"]]} [label="{label}", fillcolor="{fill}"];'
    for task in tasks:
        for upstream, on in upstreams_of(task):
            if upstream in names:
                attributes = (
                    "" if on == "success" else f' [label="{_escape_dot(on)}", style=dashed]'
                )
                yield f"  {names[upstream]} -> {names[task['id']]}{attributes};"
    yield "}"


def as_mermaid(tasks: Sequence[GraphTask]) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart."""
    names = _node_names(tasks)
    yield "flowchart TD"
    for task in tasks:
        label = f"{_escape_mermaid(label_of(task))}<br/>{_escape_mermaid(task['status'])}"
        status = task["status"]
        styled = f":::{status}" if status in FILLS else ""
        yield f'  {names[task["id"]]}["{label}"]{styled}'
    for task in tasks:
        for upstream, on in upstreams_of(task):
            if upstream in names:
                arrow = "-->" if on == "success" else f'-. "{_escape_mermaid(on)}" .->'
                yield f"  {names[upstream]} {arrow} {names[task['id']]}"
    for status in sorted({task["status"] for task in tasks} & FILLS.keys()):
        yield f"  classDef {status} fill:{FILLS[status]},color:#000"


def _node_names(tasks: Sequence[GraphTask]) -> Mapping[str, str]:
    """Return generated identifiers for the tasks, free of user input."""
    return {task["id"]: f"t{number}" for number, task in enumerate(tasks, 1)}


def _escape_dot(text: str) -> str:
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


def _escape_mermaid(text: str) -> str:
    """Escape everything but letters, digits and a few signs as character codes."""
    return "".join(
        sign if sign.isalnum() or sign in UNESCAPED else f"#{ord(sign)};" for sign in clean(text)
    )
