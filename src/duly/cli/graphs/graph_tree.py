"""A graph on the terminal: a tree in which every task stands below one of its upstreams.

That one is its last upstream in the order of the graph; the others are named beside it. An
only dependant goes on below without a step to the right, so a long chain stays a column.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from duly.cli.graph_text import label_of, upstreams_of
from duly.cli.tables import STYLES, console
from duly.cli.text import clean
from duly.client.graph_shapes import GraphPart

NAMED = 6
"""How many other upstreams are named beside a task."""
DEEPEST = 20
"""Steps to the right; what is deeper is drawn there, with its depth before it."""
MARKS = {"done": "✔", "failed": "✘", "cancelled": "∅", "running": "▶", "paused": "‖"}
ASCII_MARKS = {"done": "+", "failed": "x", "cancelled": "-", "running": ">", "paused": "="}


@dataclass(frozen=True, slots=True)
class Signs:
    """What lines are drawn with."""

    fork: str
    last: str
    bar: str
    down: str
    wait: str
    marks: Mapping[str, str]


LINES = Signs("├─ ", "└─ ", "│  ", "↓ ", "·", MARKS)
ASCII = Signs("|- ", "`- ", "|  ", "v ", ".", ASCII_MARKS)


def draw_graph(title: str, parts: Sequence[GraphPart], *, marked: str | None) -> None:
    """Print a graph, one task a line, with its status; `marked` is the task that was asked for."""
    out = console()
    signs = LINES if _can_draw() else ASCII
    out.print(Text(title, "bold"))
    for line in _lines(parts, signs, marked):
        out.print(line, soft_wrap=True)


def _can_draw() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _lines(parts: Sequence[GraphPart], signs: Signs, marked: str | None) -> Iterator[Text]:
    known = {part["id"]: part for part in parts}
    order = {part["id"]: place for place, part in enumerate(parts)}
    below: dict[str | None, list[str]] = {}
    for part in parts:
        ours = [one for one, _ in upstreams_of(part) if one in known]
        below.setdefault(max(ours, key=order.__getitem__, default=None), []).append(part["id"])
    roots = below.get(None, [])
    open_: list[tuple[str, str, str, int, str | None]] = [
        (one, *_steps(signs, one == roots[-1]), 1, None) for one in reversed(roots)
    ]
    while open_:
        one, lead, indent, depth, above = open_.pop()
        yield _line(known[one], known, Text(lead), signs, above, is_marked=one == marked)
        under = below.get(one, [])
        if len(under) == 1:
            open_.append((under[0], f"{indent}{signs.down}", indent, depth, one))
            continue
        for each in reversed(under):
            step, bar = _steps(signs, each == under[-1])
            if depth >= DEEPEST:
                step, bar = f"({depth + 1}) ", ""
            open_.append((each, f"{indent}{step}", f"{indent}{bar}", depth + 1, one))


def _steps(signs: Signs, is_last: bool) -> tuple[str, str]:
    return (signs.last, "   ") if is_last else (signs.fork, signs.bar)


def _line(
    part: GraphPart,
    known: Mapping[str, GraphPart],
    lead: Text,
    signs: Signs,
    above: str | None,
    *,
    is_marked: bool,
) -> Text:
    status, style = clean(part["status"]), STYLES.get(part["status"], "")
    line = lead + Text(f"{signs.marks.get(part['status'], signs.wait)} ", style)
    line.append(label_of(part), "bold underline" if is_marked else "bold")
    line.append(f"  {status}", style)
    line.append(f"  {clean(part['id'])}", "dim")
    if is_marked:
        line.append("  (this task)")
    if beside := _beside(part, known, above):
        line.append(f"  after {beside}", "dim")
    return line


def _beside(part: GraphPart, known: Mapping[str, GraphPart], above: str | None) -> str:
    """Return what the drawing does not show: other upstreams, and how they must end."""
    said = []
    for upstream, on in upstreams_of(part):
        if upstream != above or on != "success":
            name = label_of(known[upstream]) if upstream in known else clean(upstream)
            said.append(name if on == "success" else f"{name} ({clean(on)})")
    more = [f"{len(said) - NAMED} more"] if len(said) > NAMED else []
    return ", ".join([*said[:NAMED], *more])
