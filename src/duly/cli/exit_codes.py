"""Exit codes, and the one line that is said at the end of a task.

    0 done · 1 refused or failed · 2 usage · 3 no server can be reached

Commands that stand for a task (`run`, `wait`, `submit --wait`) end as it did:
with its own exit code, 128 + n for signal n, 124 at its cap, and 125 for all that
is Duly's and not the task's.
"""

from collections.abc import Mapping

from duly.cli.text import clean, say_span
from duly.client.shapes import Task
from duly.errors import DulyError, Unreachable

REFUSED = 1
UNREACHABLE = 3
CAPPED = 124
OURS = 125
SIGNALLED = 128


def code_of_error(error: DulyError) -> int:
    """Return how a command ends that an error kept from its work."""
    return UNREACHABLE if isinstance(error, Unreachable) else REFUSED


def code_of_task(task: Task) -> int:
    """Return how a command ends that stands for `task`."""
    if task["status"] == "done":
        return 0
    if task["status"] != "failed":
        return OURS
    if task["outcome"] == "capped":
        return CAPPED
    signal = signal_of(task)
    if task["outcome"] != "failed" or (signal is None and not task["exit_code"]):
        return OURS
    return SIGNALLED + signal if signal is not None else (task["exit_code"] or OURS) & 0xFF


def signal_of(task: Task) -> int | None:
    """Return the signal that ended the last attempt, if one did."""
    code = task["exit_code"]
    if code is not None and code < 0:
        return -code
    reason = task["reason"]
    signal = reason["details"].get("signal") if reason else None
    return signal if isinstance(signal, int) and 0 < signal < 128 else None


def describe_end(task: Task) -> str:
    """Say in one line how `task` ended: what it waited, ran and used."""
    parts = []
    if waited := say_span(task["ready_at"] or task["submitted_at"], task["started_at"]):
        parts.append(f"waited {waited}")
    if task["started_at"]:
        parts.append(f"ran {say_span(task['started_at'], task['finished_at'])}")
    if task["started_at"] and (usage := task["usage"]):
        parts.append(f"peak memory {usage['peak_memory_mb']:.0f} MiB")
    if task["attempt"] > 1:
        parts.append(f"{task['attempt']} attempts")
    if task["started_at"] and (weak := say_weak_limits(task.get("enforcement") or {})):
        parts.append(f"on a node that {weak}")
    return f"{_end(task)}: {', '.join(parts)}" if parts else _end(task)


def say_weak_limits(enforcement: Mapping[str, str]) -> str:
    """Say which limits a node does not enforce as well as nodes can; nothing if there are none."""
    unlimited = [kind for kind in ("cpu", "processes") if enforcement.get(kind) == "none"]
    said = ["only samples memory"] if enforcement.get("memory") == "sampled" else []
    if unlimited:
        said.append(f"does not limit {' or '.join(unlimited)}")
    return " and ".join(said)


def _end(task: Task) -> str:
    if task["status"] != "failed":
        return task["status"]
    reason = task["reason"]
    return f"failed ({clean(reason['message']).rstrip('.')})" if reason else "failed"
