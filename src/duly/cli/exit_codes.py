"""Exit codes, and the summary line at the end of a task.

    0 done · 1 refused or failed · 2 usage · 3 no server can be reached

`run`, `wait` and `submit --wait` exit as the task did: with its exit code, 128 + n for signal n,
124 at its execution cap, and 125 for failures of Duly rather than of the task. A command that
was interrupted with Ctrl-C exits with 130 (`entry.py`), also one that runs until it is stopped.
"""

import re
from collections.abc import Mapping

from duly.cli.output.text import clean, format_span
from duly.client.shapes.task_shapes import Reason, Task
from duly.errors import DulyError, Unreachable
from duly.model.wording import uncapitalised

REFUSED = 1
UNREACHABLE = 3
CAPPED = 124
DULY_FAILED = 125
SIGNAL_BASE = 128
FAILURES = ("failed", "capped", "overused")
"""Outcomes that count against `max_attempts`."""
LAST_ATTEMPT = re.compile(r" That was (?:its only attempt|the last of \d+ attempts)\.$")


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
    """Return a line with how `task` ended, how long it waited and ran, and its peak memory.

    As in "failed: exit code 1 (attempt 3 of 3); waited 0.2 s, ran 4.1 s, peak memory 12 MiB".
    """
    head = task["status"]
    if task["status"] == "failed" and (reason := task["reason"]):
        head = f"failed: {_why(reason)}"
    if task["attempt"]:
        head += f" ({_attempts(task)})"
    if not task["started_at"]:
        return f"{head}; it never started"
    parts = []
    if waited := format_span(task["ready_at"] or task["submitted_at"], task["started_at"]):
        parts.append(f"waited {waited}")
    parts.append(f"ran {format_span(task['started_at'], task['finished_at'])}")
    if (usage := task["usage"]) and (peak := usage["peak_memory_mb"]) is not None:
        parts.append(f"peak memory {format_memory(peak)}")
    if weak := describe_weak_limits(task.get("enforcement") or {}):
        parts.append(f"on a node that {weak}")
    return f"{head}; {', '.join(parts)}"


def format_memory(mebibytes: float) -> str:
    """Format an amount of memory: "12 MiB", "under 1 MiB"."""
    return f"{mebibytes:.0f} MiB" if mebibytes >= 1 else "under 1 MiB"


def _why(reason: Reason) -> str:
    """Return the reason of a failure in a few words, without the count of attempts."""
    if reason["code"] == "exit_code" and (code := reason["details"].get("exit_code")) is not None:
        return f"exit code {code}"
    message = LAST_ATTEMPT.sub("", clean(reason["message"]))
    return uncapitalised(message.rstrip("."))


def _attempts(task: Task) -> str:
    """Return which attempt ended the task: "attempt 2 of 3", "attempt 5, 2 lost with their nodes".

    Attempts that were lost or returned to the queue do not count against `max_attempts`, so "5 of
    3" would be possible.
    """
    counted = task["failures"] + (task["outcome"] not in FAILURES)
    whole = f" of {task['max_attempts']}" if task["attempt"] <= counted else ""
    return f"attempt {task['attempt']}{whole}{lost_clause(task)}"


def lost_clause(task: Task) -> str:
    """Return how many attempts were lost, as part of a sentence; empty if none was."""
    if not task["losses"]:
        return ""
    return f", {task['losses']} lost with {'its node' if task['losses'] == 1 else 'their nodes'}"


def describe_weak_limits(enforcement: Mapping[str, str]) -> str:
    """Describe the limits that a node enforces only partly or not at all; empty if none."""
    unlimited = [kind for kind in ("cpu", "processes") if enforcement.get(kind) == "none"]
    said = ["only samples memory"] if enforcement.get("memory") == "sampled" else []
    if unlimited:
        said.append(f"does not limit {' or '.join(unlimited)}")
    return " and ".join(said)
