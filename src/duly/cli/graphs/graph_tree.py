"""Prints a graph as a tree in the terminal, every task below one of its upstreams.

That is its last upstream in the graph's order; the others are named beside it. An only child is
not indented, so a long chain stays a column.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from duly.cli.graphs.graph_text import label_of, upstreams_of
from duly.cli.output.tables import STYLES, console
from duly.cli.output.text import clean
from duly.client.shapes.graph_shapes import GraphTask

MAX_NAMED_UPSTREAMS = 6
"""How many other upstreams are named beside a task; the rest are counted."""
MAX_INDENT_LEVELS = 20
"""Deeper tasks are printed at this indentation with their depth in front."""
MARKS = {"done": "✔", "failed": "✘", "cancelled": "∅", "running": "▶", "paused": "‖"}
ASCII_MARKS = {"done": "+", "failed": "x", "cancelled": "-", "running": ">", "paused": "="}


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that the tree is drawn with."""

    fork: str
    last: str
    bar: str
    down: str
    wait: str
    marks: Mapping[str, str]


UNICODE = Glyphs("├─ ", "└─ ", "│  ", "↓ ", "·", MARKS)
ASCII = Glyphs("|- ", "`- ", "|  ", "v ", ".", ASCII_MARKS)


def print_graph(title: str, tasks: Sequence[GraphTask], *, marked: str | None) -> None:
    """Print a graph, one task per line with its status; `marked` is the requested task."""
    out = console()
    glyphs = UNICODE if _is_utf8_terminal() else ASCII
    out.print(Text(title, "bold"))
    for line in _lines(tasks, glyphs, marked):
        out.print(line, soft_wrap=True)


def _is_utf8_terminal() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _lines(tasks: Sequence[GraphTask], glyphs: Glyphs, marked: str | None) -> Iterator[Text]:
    by_id = {task["id"]: task for task in tasks}
    order = {task["id"]: position for position, task in enumerate(tasks)}
    children_of: dict[str | None, list[str]] = {}
    for task in tasks:
        upstreams = [upstream for upstream, _ in upstreams_of(task) if upstream in by_id]
        children_of.setdefault(max(upstreams, key=order.__getitem__, default=None), []).append(
            task["id"]
        )
    roots = children_of.get(None, [])
    open_: list[tuple[str, str, str, int, str | None]] = [
        (task_id, *_steps(glyphs, task_id == roots[-1]), 1, None) for task_id in reversed(roots)
    ]
    while open_:
        task_id, lead, indent, depth, parent = open_.pop()
        yield _line(by_id[task_id], by_id, Text(lead), glyphs, parent, is_marked=task_id == marked)
        children = children_of.get(task_id, [])
        if len(children) == 1:
            open_.append((children[0], f"{indent}{glyphs.down}", indent, depth, task_id))
            continue
        for child in reversed(children):
            step, bar = _steps(glyphs, child == children[-1])
            if depth >= MAX_INDENT_LEVELS:
                step, bar = f"({depth + 1}) ", ""
            open_.append((child, f"{indent}{step}", f"{indent}{bar}", depth + 1, task_id))


def _steps(glyphs: Glyphs, is_last: bool) -> tuple[str, str]:
    return (glyphs.last, "   ") if is_last else (glyphs.fork, glyphs.bar)


def _line(
    task: GraphTask,
    by_id: Mapping[str, GraphTask],
    lead: Text,
    glyphs: Glyphs,
    parent: str | None,
    *,
    is_marked: bool,
) -> Text:
    status, style = clean(task["status"]), STYLES.get(task["status"], "")
    line = lead + Text(f"{glyphs.marks.get(task['status'], glyphs.wait)} ", style)
    line.append(label_of(task), "bold underline" if is_marked else "bold")
    line.append(f"  {status}", style)
    line.append(f"  {clean(task['id'])}", "dim")
    if is_marked:
        line.append("  (this task)")
    if beside := _other_upstreams(task, by_id, parent):
        line.append(f"  after {beside}", "dim")
    return line


def _other_upstreams(task: GraphTask, by_id: Mapping[str, GraphTask], parent: str | None) -> str:
    """Return what the tree does not show: other upstreams and their conditions."""
    others = []
    for upstream, on in upstreams_of(task):
        if upstream != parent or on != "success":
            name = label_of(by_id[upstream]) if upstream in by_id else clean(upstream)
            others.append(name if on == "success" else f"{name} ({clean(on)})")
    more = (
        [f"{len(others) - MAX_NAMED_UPSTREAMS} more"] if len(others) > MAX_NAMED_UPSTREAMS else []
    )
    return ", ".join([*others[:MAX_NAMED_UPSTREAMS], *more])
