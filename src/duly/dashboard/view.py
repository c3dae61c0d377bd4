"""What the overview shows, as plain values made from the answers of the API.

Nothing here draws or fetches. Text from tenants passes through `visible`, which
takes away what could disguise a line (control and bidirectional characters);
keeping it from becoming markup is left to the template engine, which escapes it.
"""

import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.client.shapes import Audit, Node, Status, Task, Usage
from duly.duration import format_duration
from duly.model.numerals import plain

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
KINDS = {
    "cpu": "cpu",
    "memory_mb": "memory",
    "disk_mb": "disk",
    "iops": "iops",
    "bandwidth_mbps": "bandwidth",
    "ports": "ports",
}
JOINERS = "\u200c\u200d"
"""Zero-width, but part of scripts and emoji, and harmless."""
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
LONGEST_COMMAND = 300
MOST = 100_000
"""The server counts no further."""
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


class Snapshot(msgspec.Struct, frozen=True):
    """What the pages know: the newest answers, and what keeps them from newer ones."""

    problem: str | None = None
    server: str = ""
    counts: Mapping[str, int] = {}
    window_hours: int = 24
    nodes: tuple[NodeView, ...] = ()
    tasks: tuple[dict[str, str], ...] = ()
    drift: str = ""
    """What the audit has found, in a sentence; empty when all is as it should be."""
    is_suspended: bool = False
    """Whether the tenant may only look."""


def snapshot(
    status: Status, nodes: Sequence[Node], tasks: Sequence[Task], *, is_suspended: bool = False
) -> Snapshot:
    """Turn answers of the API into what the page shows."""
    now = datetime.fromisoformat(status["time"])
    tasks_by_status: Mapping[str, Any] = status["tasks"]
    return Snapshot(
        server=f"{visible(status['server'])} · version {visible(status['version'])}",
        counts={name: tasks_by_status.get(name, 0) for name in STATUSES},
        window_hours=status["window_hours"],
        nodes=tuple(node_view(node) for node in nodes),
        tasks=tuple(task_row(task, now) for task in tasks),
        drift=drift(status.get("audit")),
        is_suspended=is_suspended,
    )


def drift(audit: Audit | None) -> str:
    """Say what the audit has found that is not as it should be, if anything."""
    if audit is None or not audit["drift"]:
        return ""
    kinds = ", ".join(f"{one['count']} {one['kind']}" for one in audit["drift"])
    return f"The audit has found what should not be: {visible(kinds)}. See duly status."


def task_row(task: Task, now: datetime) -> dict[str, str]:
    """Return the cells of a task in the table, all of them text."""
    return {
        "id": task["id"],
        "status": task["status"],
        "name": visible(task["name"] or "(no name)"),
        "owner": owner(task),
        "waited": waited(task, now),
        "ran": span(task["started_at"], task["finished_at"], now),
        "node": visible(node_name(task)),
        "reason": reason(task),
    }


def task_facts(task: Task) -> list[tuple[str, str]]:
    """Return what is known of one task as (label, text), for its details."""
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
        ("Start by", moment(task["start_by"])),
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
    """Say how far a task that runs has come by its own account."""
    told = task.get("progress")
    if told is None:
        return ""
    return f"{told['fraction']:.0%}" + (f": {told['text']}" if told["text"] else "")


def concurrency(task: Task) -> str:
    """Say beside how many others with its key a task may run."""
    asked = task.get("concurrency")
    return "" if asked is None else f"{asked['limit']} at once with the key {asked['key']}"


def node_view(node: Node) -> NodeView:
    """Return a node with its bars; kinds of which it has nothing are left out.

    A lost node has no bars: what is free on it is free for nobody.
    """
    count, heard = node["tasks"], node["last_heartbeat_at"]
    note = "1 task" if count == 1 else f"{count} tasks"
    bars: list[Bar] = []
    if node["status"] == "lost":
        note = f"last heard of at {moment(heard)}" if heard else "not heard of"
    else:
        capacity, free = _amounts(node["capacity"]), _amounts(node["free"])
        bars = [
            bar(kind, whole - free.get(kind, 0), whole)
            for kind, whole in capacity.items()
            if whole > 0
        ]
    return NodeView(visible(node["name"]), visible(node["status"]), note, tuple(bars))


def bar(kind: str, used: float, whole: float) -> Bar:
    """Return how much of `whole` is in use, as a share and in words."""
    share = min(max(used / whole, 0.0), 1.0)
    return Bar(
        visible(KINDS.get(kind, kind)), share, f"{amount(kind, used)} of {amount(kind, whole)}"
    )


def amount(kind: str, value: float) -> str:
    """Write an amount of a kind of resource as briefly as it can be read."""
    if kind in ("memory_mb", "disk_mb"):
        return f"{value / 1024:.1f} GiB" if value >= 1024 else f"{plain(value)} MiB"
    return plain(round(value, 3))


def resources(needs: Mapping[str, Any], tier: str | None) -> str:
    """Write what a task needs: 0.5 cpu, 256 MiB memory (basic)."""
    parts = [
        f"{amount(kind, value)} {KINDS.get(kind, kind)}"
        for kind, value in _amounts(needs).items()
        if value > 0
    ]
    return ", ".join(parts) + (f" ({tier})" if tier else "")


def command(task: Task) -> str:
    """Return what is run, as one would type it; the text of a script is not repeated here."""
    told: Mapping[str, Any] = dict(task)
    text = shlex.join(told.get("command") or []) or told.get("script_path") or ""
    text = text or ("a script that was sent along" if told.get("source") else "")
    return text if len(text) <= LONGEST_COMMAND else text[:LONGEST_COMMAND] + " …"


def attempts(task: Task) -> str:
    """Say how often a task was tried, and what came of it."""
    text = f"{task['attempt']} begun, {task['failures']} of {task['max_attempts']} failed"
    return f"{text}, {task['losses']} lost" if task["losses"] else text


def usage(used: Usage | None) -> str:
    """Write what an attempt used, or nothing."""
    if not used:
        return ""
    return (
        f"{used['cpu_seconds']:.2f} s of cpu, {used['peak_memory_mb']:.0f} MiB at the peak, "
        f"{used['wall_seconds']:.1f} s in all"
    )


def count(number: int) -> str:
    """Write a number of tasks, and say when it was cut off."""
    return f"{number:,}+" if number >= MOST else f"{number:,}"


def owner(task: Task) -> str:
    """Return tenant and user in one, as in acme / kim."""
    return visible(" / ".join(part for part in (task["tenant"], task["user"]) if part))


def reason(task: Task) -> str:
    """Return the sentence that says why a task is where it is; nothing when all is well."""
    given = task["reason"]
    if given is not None:
        return visible(given["message"])
    is_ahead = task["status"] == "scheduled" and task["ready_at"] is not None
    return f"Not before {moment(task['ready_at'])}." if is_ahead else ""


def node_name(task: Task) -> str:
    """Return the name of the node that runs or ran the task."""
    return task["node"] or NOTHING


def waited(task: Task, now: datetime) -> str:
    """Return how long a task has waited since it could start; nothing before its time."""
    if task["status"] == "scheduled":
        return NOTHING
    until = task["started_at"] or task["finished_at"]
    return span(task["ready_at"] or task["submitted_at"], until, now)


def span(since: str | None, until: str | None, now: datetime) -> str:
    """Return the time from `since` to `until`, or to now while it goes on."""
    if since is None:
        return NOTHING
    last = datetime.fromisoformat(until) if until else now
    return format_duration(max(last - datetime.fromisoformat(since), timedelta(0)))


def duration(seconds: float | None) -> str:
    """Write a number of seconds for people."""
    return NOTHING if seconds is None else format_duration(timedelta(seconds=seconds))


def moment(text: str | None) -> str:
    """Write an instant to the second, in UTC as the server says it."""
    if text is None:
        return NOTHING
    return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M:%S} UTC"


def visible(text: str) -> str:
    """Return `text` with every invisible or direction-changing character written out."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def log_text(text: str) -> str:
    """Return the end of a log without the codes that colour a terminal."""
    lines = TERMINAL_CODES.sub("", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(visible(line.replace("\t", "    ")) for line in lines)


def _shown(character: str) -> str:
    if character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()


def _amounts(vector: Mapping[str, Any]) -> dict[str, float]:
    named = {kind: vector.get(kind, 0) for kind in KINDS}
    return named | dict(vector.get("extra") or {})
