"""Exit codes, and the summary line at the end of a task.

    0 done · 1 refused or failed · 2 usage · 3 no server can be reached

`run`, `wait` and `submit --wait` exit as the task did: with its exit code, 128 + n for signal n,
124 at its execution cap, and 125 for failures of Duly rather than of the task. A command that
was interrupted with Ctrl-C exits with 130 (`entry.py`), also one that runs until it is stopped.
"""

from collections.abc import Mapping

from duly.cli.output.text import clean, format_span
from duly.client.shapes.task_shapes import Task
from duly.errors import DulyError, Unreachable

REFUSED = 1
UNREACHABLE = 3
CAPPED = 124
DULY_FAILED = 125
SIGNAL_BASE = 128


def exit_code_for_error(error: DulyError) -> int:
    """Return the exit code of a command that failed with `error`."""
    return UNREACHABLE if isinstance(error, Unreachable) else REFUSED


def exit_code_for_task(task: Task) -> int:
    """Return the exit code of a command that ran or waited for `task`."""
    if task["status"] == "done":
        return 0
    if task["status"] != "failed":
        return DULY_FAILED
    if task["outcome"] == "capped":
        return CAPPED
    signal = signal_of(task)
    if task["outcome"] != "failed" or (signal is None and not task["exit_code"]):
        return DULY_FAILED
    return SIGNAL_BASE + signal if signal is not None else (task["exit_code"] or DULY_FAILED) & 0xFF


def signal_of(task: Task) -> int | None:
    """Return the signal that ended the last attempt, if one did."""
    code = task["exit_code"]
    if code is not None and code < 0:
        return -code
    reason = task["reason"]
    signal = reason["details"].get("signal") if reason else None
    return signal if isinstance(signal, int) and 0 < signal < 128 else None


def describe_end(task: Task) -> str:
    """Return a line with how `task` ended, how long it waited and ran, and its peak memory."""
    parts = []
    if waited := format_span(task["ready_at"] or task["submitted_at"], task["started_at"]):
        parts.append(f"waited {waited}")
    if task["started_at"]:
        parts.append(f"ran {format_span(task['started_at'], task['finished_at'])}")
    if task["started_at"] and (usage := task["usage"]):
        parts.append(f"peak memory {usage['peak_memory_mb']:.0f} MiB")
    if task["attempt"] > 1:
        parts.append(f"{task['attempt']} attempts")
    if task["started_at"] and (weak := describe_weak_limits(task.get("enforcement") or {})):
        parts.append(f"on a node that {weak}")
    return f"{_final_status(task)}: {', '.join(parts)}" if parts else _final_status(task)


def describe_weak_limits(enforcement: Mapping[str, str]) -> str:
    """Describe the limits that a node enforces only partly or not at all; empty if none."""
    unlimited = [kind for kind in ("cpu", "processes") if enforcement.get(kind) == "none"]
    said = ["only samples memory"] if enforcement.get("memory") == "sampled" else []
    if unlimited:
        said.append(f"does not limit {' or '.join(unlimited)}")
    return " and ".join(said)


def _final_status(task: Task) -> str:
    if task["status"] != "failed":
        return task["status"]
    reason = task["reason"]
    return f"failed ({clean(reason['message']).rstrip('.')})" if reason else "failed"
