"""Converts API responses into the plain values that the overview shows.

Nothing here draws or fetches. Text from tenants passes through `visible`, which escapes characters
that could disguise a line (control and bidirectional characters); markup is escaped by the template
engine.
"""

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.client.shapes.account_shapes import Tenant
from duly.client.shapes.fleet_shapes import Audit, Node, Status
from duly.client.shapes.task_shapes import Task, Usage
from duly.duration import format_duration
from duly.model.call_text import format_call
from duly.model.numerals import format_number

STATUSES = (
    "scheduled",
    "blocked",
    "waiting",
    "running",
    "paused",
    "done",
    "failed",
    "cancelled",
)
NOT_STARTED = frozenset({"scheduled", "blocked", "waiting", "paused"})
KINDS = {
    "cpu": "cpu",
    "memory_mb": "memory",
    "disk_mb": "disk",
    "iops": "iops",
    "bandwidth_mbps": "bandwidth",
    "ports": "ports",
}
JOINERS = "\u200c\u200d"
"""Zero-width, but needed by some scripts and emoji, and harmless."""
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
MAX_COMMAND_LENGTH = 300
MAX_COUNT = 100_000
"""The number at which the server stops counting tasks."""
NOTHING = "–"  # noqa: RUF001


class Bar(msgspec.Struct, frozen=True):
    """How much of one kind of resource is used on a node."""

    kind: str
    share: float
    text: str


class NodeView(msgspec.Struct, frozen=True):
    """A node, with a bar for every kind of resource that it has."""

    name: str
    status: str
    note: str
    bars: tuple[Bar, ...]


class TenantOption(msgspec.Struct, frozen=True):
    """A tenant by which the overview can be filtered."""

    name: str
    label: str


class Snapshot(msgspec.Struct, frozen=True):
    """The contents of the overview, and the problem that prevents newer ones, if any."""

    problem: str | None = None
    server: str = ""
    counts: Mapping[str, int] = {}
    window_hours: int = 24
    nodes: tuple[NodeView, ...] = ()
    tasks: tuple[dict[str, str], ...] = ()
    drift: str = ""
    """The audit's findings in one sentence; empty if there are none."""
    is_suspended: bool = False
    """Whether the tenant is suspended, and its access read-only."""
    tenants: tuple[TenantOption, ...] = ()
    """The tenants that an administrator can choose from."""


def snapshot(
    status: Status,
    nodes: Sequence[Node],
    tasks: Sequence[Task],
    *,
    is_suspended: bool = False,
    tenants: tuple[TenantOption, ...] = (),
) -> Snapshot:
    """Convert API responses into a snapshot."""
    now = datetime.fromisoformat(status["time"])
    tasks_by_status: Mapping[str, Any] = status["tasks"]
    return Snapshot(
        server=" · version ".join(
            visible(part) for part in (status["server"], status["version"]) if part
        ),
        counts={name: tasks_by_status.get(name, 0) for name in STATUSES},
        window_hours=status["window_hours"],
        nodes=tuple(node_view(node) for node in nodes),
        tasks=tuple(task_row(task, now) for task in tasks),
        drift=drift(status.get("audit")),
        is_suspended=is_suspended,
        tenants=tenants,
    )


def tenant_options(tenants: Sequence[Tenant]) -> tuple[TenantOption, ...]:
    """Return the tenants to choose from, by name."""
    return tuple(
        TenantOption(
            tenant["name"],
            visible(tenant["name"]) + (" (suspended)" if tenant["status"] == "suspended" else ""),
        )
        for tenant in sorted(tenants, key=lambda tenant: tenant["name"])
    )


def drift(audit: Audit | None) -> str:
    """Return the audit's findings in one sentence; empty if there are none."""
    if audit is None or not audit["drift"]:
        return ""
    kinds = ", ".join(f"{finding['count']} {finding['kind']}" for finding in audit["drift"])
    return f"The audit has found inconsistencies: {visible(kinds)}. See 'duly status'."


def task_row(task: Task, now: datetime) -> dict[str, str]:
    """Return the cells of a task's table row, all of them text."""
    return {
        "id": task["id"],
        "status": task["status"],
        "name": visible(task["name"] or task["ref"] or "(no name)"),
        "owner": owner(task),
        "waited": waited(task, now),
        "ran": span(task["started_at"], task["finished_at"], now),
        "node": visible(node_name(task)),
        "reason": short_reason(task),
    }


def task_facts(task: Task) -> list[tuple[str, str]]:
    """Return the fields of a task that have a value as (label, text), for its details."""
    facts = [
        ("Id", task["id"]),
        ("Command", command(task)),
        ("Tenant and user", owner(task)),
        ("Node", visible(node_name(task))),
        ("Progress", progress(task)),
        ("Attempts", attempts(task)),
        ("Outcome of the last attempt", task["outcome"]),
        ("Exit code", task["exit_code"]),
        ("Resources", resources(task["resources"], task["tier"])),
        ("Execution cap", duration(task["execution_cap"])),
        ("Delay tolerance", duration(task["delay_tolerance"])),
        ("Queue", task.get("queue")),
        ("Submitted", moment(task["submitted_at"])),
        ("May start from", moment(task["ready_at"])),
        ("Start by", "" if task["finished_at"] else moment(task["start_by"])),
        ("Started", moment(task["started_at"])),
        ("Finished", moment(task["finished_at"])),
        ("Used", usage(task["usage"])),
        ("Labels", ", ".join(f"{key}={value}" for key, value in task["labels"].items())),
        ("Requires", ", ".join(f"{key}={value}" for key, value in task["requires"].items())),
        ("Concurrency", concurrency(task)),
        ("Replay of", task["replay_of"]),
    ]
    return [(label, visible(str(fact))) for label, fact in facts if fact not in (None, "", NOTHING)]


def progress(task: Task) -> str:
    """Format the progress that a running task reports; empty if it reports none."""
    reported = task.get("progress")
    if reported is None:
        return ""
    return f"{reported['fraction']:.0%}" + (f": {reported['text']}" if reported["text"] else "")


def concurrency(task: Task) -> str:
    """Format a task's concurrency limit and its key; empty if it has none."""
    limit = task.get("concurrency")
    return "" if limit is None else f"{limit['limit']} at once with the key {limit['key']}"


def node_view(node: Node) -> NodeView:
    """Return a node with its bars; kinds of resources that it does not have are left out.

    A lost node has no bars: its free resources are not available to any task.
    """
    count, last_heartbeat = node["tasks"], node["last_heartbeat_at"]
    note = "1 task" if count == 1 else f"{count} tasks"
    bars: list[Bar] = []
    if node["status"] in ("stopped", "lost"):
        note = f"last heard of at {moment(last_heartbeat)}" if last_heartbeat else "not heard of"
    else:
        capacity, free = _amounts(node["capacity"]), _amounts(node["free"])
        bars = [
            bar(kind, total - free.get(kind, 0), total)
            for kind, total in capacity.items()
            if total > 0
        ]
    return NodeView(visible(node["name"]), visible(node["status"]), note, tuple(bars))


def bar(kind: str, used: float, total: float) -> Bar:
    """Return how much of `total` is in use, as a share and as text."""
    share = min(max(used / total, 0.0), 1.0)
    return Bar(
        visible(KINDS.get(kind, kind)), share, f"{amount(kind, used)} of {amount(kind, total)}"
    )


def amount(kind: str, value: float) -> str:
    """Format an amount of a kind of resource briefly, with its unit."""
    if kind in ("memory_mb", "disk_mb"):
        return f"{value / 1024:.1f} GiB" if value >= 1024 else f"{format_number(value)} MiB"
    return format_number(round(value, 3))


def resources(needs: Mapping[str, Any], tier: str | None) -> str:
    """Format the resources of a task: 0.5 cpu, 256 MiB memory (basic)."""
    parts = [
        f"{amount(kind, value)} {KINDS.get(kind, kind)}"
        for kind, value in _amounts(needs).items()
        if value > 0
    ]
    return ", ".join(parts) + (f" ({tier})" if tier else "")


def command(task: Task) -> str:
    """Return the command as typed in a shell; the text of a script is not included."""
    fields: Mapping[str, Any] = dict(task)
    called = fields.get("call")
    text = format_call(called) if called else shlex.join(fields.get("command") or [])
    text = text or fields.get("script_path") or ""
    text = text or ("a script that was sent along" if fields.get("source") else "")
    return text if len(text) <= MAX_COMMAND_LENGTH else text[:MAX_COMMAND_LENGTH] + " …"


def attempts(task: Task) -> str:
    """Format how many attempts a task has had, and how many of them failed or were lost."""
    text = f"{task['attempt']} begun, {task['failures']} of {task['max_attempts']} failed"
    return f"{text}, {task['losses']} lost" if task["losses"] else text


def usage(used: Usage | None) -> str:
    """Format the usage of an attempt; empty if there is none."""
    if not used:
        return ""
    peak = used["peak_memory_mb"]
    memory = "" if peak is None else f"{peak:.0f} MiB at the peak, "
    return f"{used['cpu_seconds']:.2f} s of cpu, {memory}{used['wall_seconds']:.1f} s in all"


def count(number: int) -> str:
    """Format a number of tasks, with a plus sign if the server stopped counting."""
    return f"{number:,}+" if number >= MAX_COUNT else f"{number:,}"


def owner(task: Task) -> str:
    """Return tenant and user in one text: acme / kim."""
    return visible(" / ".join(part for part in (task["tenant"], task["user"]) if part))


def reason(task: Task) -> str:
    """Return the sentence that explains a task's status; empty if nothing needs explaining."""
    stated = task["reason"]
    if stated is not None:
        return visible(stated["message"])
    is_pending = task["status"] == "scheduled" and task["ready_at"] is not None
    return f"Not before {moment(task['ready_at'])}." if is_pending else ""


def short_reason(task: Task) -> str:
    """Return the reason in a word while the task has not started, and else as a sentence."""
    stated = task["reason"]
    if stated is not None and task["status"] in NOT_STARTED:
        return visible(stated["code"])
    return reason(task)


def node_name(task: Task) -> str:
    """Return the name of the node that runs or ran the task."""
    return task["node"] or NOTHING


def waited(task: Task, now: datetime) -> str:
    """Return how long a task has waited since it was ready; a dash if it is scheduled."""
    if task["status"] == "scheduled":
        return NOTHING
    until = task["started_at"] or task["finished_at"]
    return span(task["ready_at"] or task["submitted_at"], until, now)


def span(since: str | None, until: str | None, now: datetime) -> str:
    """Return the time from `since` to `until`, or to `now` if it has not ended."""
    if since is None:
        return NOTHING
    last = datetime.fromisoformat(until) if until else now
    return format_duration(max(last - datetime.fromisoformat(since), timedelta(0)))


def duration(seconds: float | None) -> str:
    """Format a number of seconds; a dash for None."""
    return NOTHING if seconds is None else format_duration(timedelta(seconds=seconds))


def moment(text: str | None) -> str:
    """Format a time to the second, in UTC as the server sends it."""
    if text is None:
        return NOTHING
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"


def visible(text: str) -> str:
    """Return `text` with every invisible or direction-changing character escaped."""
    if text.isprintable():
        return text
    return "".join(_escape_invisible(character) for character in text)


def log_text(text: str) -> str:
    """Return the end of a log without terminal escape codes."""
    lines = TERMINAL_CODES.sub("", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(visible(line.replace("\t", "    ")) for line in lines)


def _escape_invisible(character: str) -> str:
    if character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()


def _amounts(vector: Mapping[str, Any]) -> dict[str, float]:
    named = {kind: vector.get(kind, 0) for kind in KINDS}
    return named | dict(vector.get("extra") or {})
