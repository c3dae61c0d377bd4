"""Tables on the terminal, with rich; imported only when one is drawn.

Cells are `Text`, never markup: what a tenant wrote cannot style anything.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from duly.cli.details import say_reason, say_resources
from duly.cli.text import clean, say_age, say_span, say_time
from duly.client.shapes import Allocation, Attempt, Node, Server, Task, UsageRow, UsageTold

LINES = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
UNBOUNDED = 10_000
"""The width of what is not a terminal: whoever reads it must not lose half a line."""
LONG = frozenset({"NAME", "REASON", "FREE", "CAPACITY", "WHEN", "ZONE", "NEXT RUN", "USER"})
"""Columns whose text may go over several lines."""
IDS = frozenset({"ID", "TASK", "GRAPH"})
"""Columns that are never cut: half an id is another one, or none."""
STYLES = {
    "done": "green",
    "succeeded": "green",
    "ready": "green",
    "failed": "red",
    "capped": "red",
    "overused": "red",
    "lost": "red",
    "running": "cyan",
    "waiting": "yellow",
    "draining": "yellow",
    "scheduled": "magenta",
    "blocked": "magenta",
    "paused": "magenta",
    "cancelled": "dim",
    "drained": "dim",
}


def console() -> Console:
    """Return where tables go; colours only on a terminal, and not with NO_COLOR."""
    wide = None if sys.stdout.isatty() else UNBOUNDED
    return Console(width=wide, highlight=False, soft_wrap=False)


def draw(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print rows of text under their headings; a word with a style of its own is coloured."""
    table = Table(box=LINES, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    cells = [list(map(clean, row)) for row in rows]
    for place, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        longest = max((len(row[place]) for row in cells), default=0) if column in IDS else None
        # On a narrow terminal it is the long texts that give way.
        table.add_column(
            column,
            justify=justify,
            no_wrap=column not in LONG,
            overflow="fold",
            min_width=longest,
        )
    for row in cells:
        table.add_row(*(Text(text, STYLES.get(text, "")) for text in row))
    console().print(table)


def draw_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; a value may have several lines."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        text = Text("\n").join(
            Text(line, STYLES.get(line, "")) for line in map(clean, value.split("\n"))
        )
        table.add_row(Text(clean(name)), text)
    console().print(table)


def draw_tasks(tasks: Iterable[Task], now: datetime) -> None:
    """Print a list of tasks."""
    draw(
        ("ID", "STATUS", "SUBMITTED", "RAN", "NODE", "NAME", "REASON"),
        (_task_row(task, now) for task in tasks),
        right=("RAN",),
    )


def _task_row(task: Task, now: datetime) -> Sequence[str]:
    end = task["finished_at"] or now.isoformat()
    return (
        task["id"],
        task["status"],
        say_age(task["submitted_at"], now),
        say_span(task["started_at"], end) if task["started_at"] else "",
        task["node"] or "",
        task["name"] or task["ref"] or "",
        say_reason(task),
    )


def draw_attempts(attempts: Iterable[Attempt], now: datetime) -> None:
    """Print the attempts at a task."""
    draw(
        ("ATTEMPT", "STATUS", "EXIT", "NODE", "STARTED", "RAN", "CPU", "PEAK MEMORY", "REASON"),
        (_attempt_row(attempt, now) for attempt in attempts),
        right=("ATTEMPT", "EXIT", "RAN", "CPU", "PEAK MEMORY"),
    )


def _attempt_row(attempt: Attempt, now: datetime) -> Sequence[str]:
    usage = attempt["usage"]
    end = attempt["finished_at"] or now.isoformat()
    return (
        str(attempt["attempt"]),
        attempt["outcome"] or "running",
        "" if attempt["exit_code"] is None else str(attempt["exit_code"]),
        attempt["node"] or "",
        say_age(attempt["started_at"], now),
        say_span(attempt["started_at"], end) if attempt["started_at"] else "",
        f"{usage['cpu_seconds']:.1f}s" if usage else "",
        f"{usage['peak_memory_mb']:.0f} MiB" if usage else "",
        say_reason(attempt),
    )


def draw_allocations(allocations: Iterable[Allocation], now: datetime) -> None:
    """Print who has what of the nodes."""
    draw(
        ("ID", "KIND", "NODE", "RESOURCES", "EXPIRES"),
        (
            (
                one["id"],
                one["kind"],
                one["node"],
                say_resources(one["resources"]),
                say_time(one["expires_at"], now),
            )
            for one in allocations
        ),
    )


def draw_nodes(nodes: Iterable[Node], now: datetime) -> None:
    """Print a list of nodes."""
    draw(
        ("ID", "NAME", "STATUS", "TASKS", "FREE", "CAPACITY", "LAST HEARTBEAT"),
        (
            (
                str(node["id"]),
                node["name"],
                f"short of {short}" if (short := node.get("shortage")) else node["status"],
                str(node["tasks"]),
                say_resources(node["free"], node["capacity"]),
                say_resources(node["capacity"]),
                say_age(node["last_heartbeat_at"], now),
            )
            for node in nodes
        ),
        right=("TASKS",),
    )


def draw_usage(told: UsageTold, names: Sequence[str]) -> None:
    """Print what was used, told apart by `names`, with the sum below it."""
    columns = [name.upper() for name in names]
    figures = ("TASKS", "ATTEMPTS", "CPU S", "GRANTED CPU S", "GRANTED MIB S", "PRICE")
    rows = [
        [*(str(row.get(name) or "-") for name in names), *_figures(row)] for row in told["items"]
    ]
    if names:
        rows.append(["total", *[""] * (len(names) - 1), *_figures(told["total"])])
    draw((*columns, *figures), rows, right=figures)


def _figures(row: UsageRow) -> list[str]:
    return [
        str(row["tasks"]),
        str(row["attempts"]),
        f"{row['cpu_seconds']:.3f}",
        f"{row['granted_cpu_seconds']:.3f}",
        f"{row['granted_memory_mb_seconds']:.0f}",
        row["price"],
    ]


def draw_servers(servers: Iterable[Server], now: datetime) -> None:
    """Print a list of servers."""
    draw(
        ("ID", "NAME", "STATUS", "VERSION", "STARTED", "LAST HEARTBEAT", "LEADS"),
        (
            (
                server["id"],
                server["name"],
                server["status"],
                server["version"],
                say_age(server["started_at"], now),
                say_age(server["last_heartbeat_at"], now),
                ", ".join(f"{duty['name']} (term {duty['term']})" for duty in server["duties"]),
            )
            for server in servers
        ),
    )
