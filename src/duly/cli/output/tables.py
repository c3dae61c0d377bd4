"""Prints tables with rich; imported only when one is printed.

Cells are `Text`, never markup, so text from tenants cannot style anything.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from duly.cli.exit_codes import format_memory
from duly.cli.output.details import format_resources, reason_message, short_reason
from duly.cli.output.text import clean, format_age, format_percent, format_span, format_time
from duly.client.shapes.attempt_shapes import ListedAttempt
from duly.client.shapes.fleet_shapes import Allocation, Node, Server, TenantTasks
from duly.client.shapes.task_shapes import Attempt, Task, Usage
from duly.client.shapes.usage_shapes import UsageReport, UsageRow

HEADER_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
PIPE_WIDTH = 10_000
"""The width of output that is not a terminal: lines must not be truncated."""
WRAPPING_COLUMNS = frozenset(
    {"NAME", "REASON", "FREE", "CAPACITY", "WHEN", "ZONE", "NEXT RUN", "USER"}
)
"""Columns whose text may wrap."""
ID_COLUMNS = frozenset({"ID", "TASK", "GRAPH"})
"""Columns that are never truncated: a truncated id is another id, or none."""
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
    "stopped": "dim",
}


def console() -> Console:
    """Return a console for stdout; colours only on a terminal, and not with NO_COLOR."""
    wide = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=wide, highlight=False, soft_wrap=False)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print rows below their headings; cells that are a known status are coloured."""
    table = Table(box=HEADER_RULE, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    cells = [list(map(clean, row)) for row in rows]
    for index, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        longest = (
            max((len(row[index]) for row in cells), default=0) if column in ID_COLUMNS else None
        )
        # On a narrow terminal the long texts wrap first.
        table.add_column(
            column,
            justify=justify,
            no_wrap=column not in WRAPPING_COLUMNS,
            overflow="fold",
            min_width=longest,
        )
    for row in cells:
        table.add_row(*(Text(text, STYLES.get(text, "")) for text in row))
    console().print(table)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
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


def print_tasks(tasks: Iterable[Task], now: datetime, *, with_tenant: bool = False) -> None:
    """Print a list of tasks; with the tenant of each if they belong to several."""
    columns = ("ID", "STATUS", "SUBMITTED", "RAN", "NODE", "NAME", "REASON")
    rows = [(task["tenant"], _task_row(task, now)) for task in tasks]
    print_table(*with_tenants(columns, rows, with_tenant=with_tenant), right=("RAN",))


def with_tenants(
    columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], *, with_tenant: bool
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the table with the tenants of its rows as the second column, if wanted."""
    if not with_tenant:
        return columns, [row for _, row in rows]
    first, *others = columns
    return (first, "TENANT", *others), [(row[0], tenant, *row[1:]) for tenant, row in rows]


def _task_row(task: Task, now: datetime) -> Sequence[str]:
    end = task["finished_at"] or now.isoformat()
    return (
        task["id"],
        task["status"],
        format_age(task["submitted_at"], now),
        format_span(task["started_at"], end) if task["started_at"] else "",
        task["node"] or "",
        task["name"] or task["ref"] or "",
        short_reason(task),
    )


def _peak_memory(usage: Usage | None) -> str:
    peak = usage and usage["peak_memory_mb"]
    return "" if peak is None else format_memory(peak)


def print_attempts(attempts: Iterable[Attempt], now: datetime) -> None:
    """Print a list of attempts."""
    print_table(
        ("ATTEMPT", "STATUS", "EXIT", "NODE", "STARTED", "RAN", "CPU", "PEAK MEMORY", "REASON"),
        (_attempt_row(attempt, now) for attempt in attempts),
        right=("ATTEMPT", "EXIT", "RAN", "CPU", "PEAK MEMORY"),
    )


def print_listed_attempts(
    attempts: Iterable[ListedAttempt], now: datetime, *, with_tenant: bool = False
) -> None:
    """Print attempts of several tasks; with the tenant of each if there are several."""
    columns = ("TASK", "ATTEMPT", "STATUS", "EXIT", "NODE", "STARTED", "RAN", "NAME", "REASON")
    rows = [(attempt["tenant"], _listed_attempt_row(attempt, now)) for attempt in attempts]
    table = with_tenants(columns, rows, with_tenant=with_tenant)
    print_table(*table, right=("ATTEMPT", "EXIT", "RAN"))


def _listed_attempt_row(attempt: ListedAttempt, now: datetime) -> Sequence[str]:
    number, status, exit_code, node, started, ran, *_, reason = _attempt_row(attempt, now)
    name = attempt["name"] or attempt["ref"] or ""
    return (attempt["task"], number, status, exit_code, node, started, ran, name, reason)


def _attempt_row(attempt: Attempt, now: datetime) -> Sequence[str]:
    usage = attempt["usage"]
    end = attempt["finished_at"] or now.isoformat()
    return (
        str(attempt["attempt"]),
        attempt["outcome"] or "running",
        "" if attempt["exit_code"] is None else str(attempt["exit_code"]),
        attempt["node"] or "",
        format_age(attempt["started_at"], now),
        format_span(attempt["started_at"], end) if attempt["started_at"] else "",
        f"{usage['cpu_seconds']:.1f} s" if usage else "",
        _peak_memory(usage),
        reason_message(attempt),
    )


def print_allocations(
    allocations: Iterable[Allocation], now: datetime, *, with_tenant: bool = False
) -> None:
    """Print a list of allocations; with the tenant of each if they belong to several."""
    columns = ("ID", "KIND", "NODE", "RESOURCES", "EXPIRES")
    rows = (
        (
            allocation["tenant"],
            (
                allocation["id"],
                allocation["kind"],
                allocation["node"],
                format_resources(allocation["resources"]),
                format_time(allocation["expires_at"], now),
            ),
        )
        for allocation in allocations
    )
    print_table(*with_tenants(columns, rows, with_tenant=with_tenant))


def print_tenant_counts(tenants: Iterable[TenantTasks]) -> None:
    """Print how many tasks of each tenant are in each status, and its share of the nodes."""
    names = ("running", "waiting", "scheduled", "blocked", "paused", "done", "failed", "cancelled")
    figures = tuple(name.upper() for name in names)
    rows = []
    for tenant in tenants:
        counts: Mapping[str, object] = tenant["tasks"]
        share = format_percent(tenant["share"])
        rows.append((tenant["tenant"], share, *(str(counts[name]) for name in names)))
    print_table(("TENANT", "SHARE", *figures), rows, right=("SHARE", *figures))


def print_nodes(nodes: Iterable[Node], now: datetime) -> None:
    """Print a list of nodes."""
    print_table(
        ("ID", "NAME", "STATUS", "TENANT", "TASKS", "FREE", "CAPACITY", "LAST HEARTBEAT"),
        (
            (
                str(node["id"]),
                node["name"],
                f"short of {short}" if (short := node.get("shortage")) else node["status"],
                node.get("tenant") or "",
                str(node["tasks"]),
                format_resources(node["free"], node["capacity"]),
                format_resources(node["capacity"])
                + (" (overridden)" if node.get("reported_capacity") else ""),
                format_age(node["last_heartbeat_at"], now),
            )
            for node in nodes
        ),
        right=("TASKS",),
    )


def _capacity(node: Node) -> str:
    shown = format_resources(node["capacity"])
    return f"{shown} (overridden)" if node.get("reported_capacity") else shown


def print_usage(report: UsageReport, names: Sequence[str]) -> None:
    """Print usage grouped by `names`, with the total below."""
    columns = [name.upper() for name in names]
    figures = ("TASKS", "ATTEMPTS", "CPU S", "GRANTED CPU S", "GRANTED MIB S", "PRICE")
    rows = [
        [*(str(row.get(name) or "-") for name in names), *_figures(row)] for row in report["items"]
    ]
    if names:
        rows.append(["total", *[""] * (len(names) - 1), *_figures(report["total"])])
    print_table((*columns, *figures), rows, right=figures)


def _figures(row: UsageRow) -> list[str]:
    return [
        str(row["tasks"]),
        str(row["attempts"]),
        f"{row['cpu_seconds']:.3f}",
        f"{row['granted_cpu_seconds']:.3f}",
        f"{row['granted_memory_mb_seconds']:.0f}",
        row["price"],
    ]


def print_servers(servers: Iterable[Server], now: datetime) -> None:
    """Print a list of servers."""
    print_table(
        (
            "ID",
            "NAME",
            "STATUS",
            "ADDRESS",
            "HOST",
            "PID",
            "VERSION",
            "STARTED",
            "LAST HEARTBEAT",
            "LEADS",
        ),
        (
            (
                server["id"],
                server["name"],
                server["status"],
                server["address"] or "",
                server["host"],
                "" if server["pid"] is None else str(server["pid"]),
                server["version"],
                format_age(server["started_at"], now),
                format_age(server["last_heartbeat_at"], now),
                ", ".join(f"{duty['name']} (term {duty['term']})" for duty in server["duties"]),
            )
            for server in servers
        ),
    )
