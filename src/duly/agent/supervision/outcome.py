"""Derives the outcome of an attempt from the exit of its processes.

The supervisor reports how the processes ended (`Exit`); the state machine knows whether the agent
meant to end them (`intent`); `conclude` combines the two. The intent counts only if it was acted on
in time: a task that had already succeeded when it was told to stop has succeeded.
"""

import errno
import os
import signal

import msgspec

from duly.agent.limits.disk_usage import MAX_DEPTH, MAX_FILES, DiskUsage
from duly.agent.limits.shortage import find_shortage
from duly.model.task import Outcome, Reason

NOT_FOUND_EXIT_CODE = 127
NOT_EXECUTABLE_EXIT_CODE = 126


class Failure(msgspec.Struct, frozen=True):
    """Why a program could not be started: the step that failed, and the errno."""

    step: str
    error: int
    program: str
    interpreter: str | None = None
    """The interpreter in the first line of a script, if the program is a script of the task."""

    @property
    def shortage(self) -> str | None:
        """Return the resource that the node is short of, if that is the reason."""
        return find_shortage(self.step, self.error)


class Conclusion(msgspec.Struct, frozen=True):
    """The outcome of an attempt, with the reason when it is not a success."""

    outcome: Outcome
    reason: Reason | None = None
    exit_code: int | None = None


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes of an attempt ended; `code` is negative for a signal."""

    code: int | None
    stopped: bool = False
    """The agent had sent a signal before the main process ended."""
    capped: bool = False
    """That signal was sent because the execution cap was reached."""
    out_of_memory: bool = False
    disk_exceeded: bool = False
    """Its folder, or a single file in it, was larger than its disk limit."""
    disk_usage: DiskUsage | None = None
    disk_full: bool = False
    """The disk of its node was full when it ended."""
    failure: Failure | None = None
    is_unknown: bool = False
    """It may have run, but its exit status is not known."""
    never_begun: bool = False
    """The agent ended it before its start was due."""
    ran: float | None = None
    execution_cap: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    peak_memory_mb: float | None = None
    conclusion: Conclusion | None = None
    """What a function itself came to, unless it was ended first."""


REASONS_BY_INTENT = {
    Outcome.CANCELLED: Reason("cancelled", "Cancelled while it was running."),
    Outcome.PREEMPTED: Reason("agent_stopped", "The agent on its node was stopped."),
    Outcome.EXPIRED: Reason(
        "agent_stopped", "The agent on its node was stopped before it started."
    ),
    Outcome.LOST: Reason(
        "lease_lost", "Its node lost contact with the servers, so its lease expired."
    ),
}

CANCELLED_BEFORE_START = Conclusion(
    Outcome.CANCELLED, Reason("cancelled", "Cancelled before it started.")
)
NEVER_BEGUN = Conclusion(
    Outcome.EXPIRED, Reason("never_begun", "Its node did not start it in time.")
)
CONCLUSIONS_BEFORE_START: dict[Outcome | None, Conclusion] = {
    Outcome.CANCELLED: CANCELLED_BEFORE_START,
    Outcome.CAPPED: NEVER_BEGUN,
    Outcome.PREEMPTED: Conclusion(Outcome.EXPIRED, REASONS_BY_INTENT[Outcome.EXPIRED]),
}
"""The conclusion of an attempt that has not begun, by the intent with which it was ended."""
END_LOST = Conclusion(
    Outcome.LOST,
    Reason("end_lost", "It ended, but the record of how it ended was lost with the database."),
)

OUTCOME_UNKNOWN = Conclusion(
    Outcome.LOST,
    Reason(
        "outcome_unknown",
        "The process that starts tasks on its node died; it is unknown whether it ran.",
    ),
)


def conclude(end: Exit, intent: Outcome | None) -> Conclusion:
    """Return the conclusion for processes that ended as `end` and were meant to end as `intent`."""
    if end.failure is not None:
        return _not_started(end.failure)
    if end.never_begun:
        return CONCLUSIONS_BEFORE_START.get(intent, NEVER_BEGUN)
    code = None if end.code is None else end.code if end.code >= 0 else 128 - end.code
    if end.stopped and intent is Outcome.CANCELLED:
        return Conclusion(intent, REASONS_BY_INTENT[intent], code)
    if end.is_unknown:
        return OUTCOME_UNKNOWN
    if end.out_of_memory:
        return Conclusion(Outcome.OVERUSED, _memory(end), code)
    if end.capped or (end.stopped and intent is Outcome.CAPPED):
        return _capped(end, code)
    if end.stopped and intent is not None:
        return Conclusion(intent, REASONS_BY_INTENT[intent], code)
    if end.conclusion is not None:
        return end.conclusion
    if end.disk_exceeded or end.code == -signal.SIGXFSZ:
        return Conclusion(Outcome.OVERUSED, _disk(end), code)
    if end.code == 0:
        return Conclusion(Outcome.SUCCEEDED, None, 0)
    if end.code is not None and end.code > 0:
        return Conclusion(Outcome.FAILED, _exit_code(end, end.code), code)
    return Conclusion(Outcome.FAILED, _signal(-(end.code or 0)), code)


def _capped(end: Exit, code: int | None) -> Conclusion:
    """Conclude as capped, or as lost if the attempt was ended with time left.

    The server counts from the lease, and by the database's clock. If the attempt arrived late or
    that clock stepped, the task is not at fault.
    """
    if end.capped or end.ran is None or end.ran >= end.execution_cap:
        return Conclusion(Outcome.CAPPED, _cap(end), code)
    message = f"Stopped after {end.ran:.1f} s: it had reached its node too late."
    return Conclusion(Outcome.LOST, Reason("too_late", message, {"ran": end.ran}), code)


def _exit_code(end: Exit, code: int) -> Reason:
    if end.disk_full:
        message = f"Exited with code {code} while the disk of its node was full."
        return Reason("node_disk_full", message, {"exit_code": code})
    return Reason("exit_code", f"Exited with code {code}.", {"exit_code": code})


def _memory(end: Exit) -> Reason:
    peak = end.peak_memory_mb
    return Reason(
        "memory_exceeded",
        f"Used more than its {end.memory_mb} MiB of memory.",
        {"memory_mb": end.memory_mb, "peak_memory_mb": peak and round(peak, 1)},
    )


def _disk(end: Exit) -> Reason:
    usage, limit = end.disk_usage, end.disk_mb * 2**20
    if usage is None or usage.largest > limit:
        message = f"Wrote a file larger than its {end.disk_mb} MiB of disk."
    elif not usage.is_countable:
        message = (
            f"Its folder has more than {MAX_FILES} files, or is over {MAX_DEPTH} folders deep."
        )
    else:
        message = f"Used {usage.size / 2**20:.1f} MiB of disk, more than its {end.disk_mb} MiB."
    details: dict[str, float] = {"disk_mb": end.disk_mb}
    if usage is not None:
        details["used_mb"] = round(usage.size / 2**20, 1)
    return Reason("disk_exceeded", message, details)


def _cap(end: Exit) -> Reason:
    return Reason(
        "execution_cap_exceeded",
        f"Ran longer than its execution cap of {end.execution_cap:g} s.",
        {"execution_cap": end.execution_cap, "ran": round(end.ran or 0.0, 3)},
    )


def _signal(number: int) -> Reason:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return Reason("signal", f"Killed by {name}.", {"signal": number})


def _not_started(failure: Failure) -> Conclusion:
    program = failure.program
    details = {"program": program[:200]}
    if (lacking := failure.shortage) is not None:
        message = f"Its node is short of {lacking} and could not start it."
        return Conclusion(Outcome.EXPIRED, Reason("node_short", message, {"short_of": lacking}))
    if failure.step != "exec":
        message = (
            f"Could not be prepared on its node ({failure.step}): {os.strerror(failure.error)}."
        )
        return Conclusion(Outcome.FAILED, Reason("not_prepared", message, details))
    if failure.error in (errno.ENOENT, errno.ENOTDIR):
        message = f"The program {program[:200]!r} was not found on the node."
        if failure.interpreter is not None:
            # The script itself exists: the agent wrote it. repr shows the \r of a CRLF line ending.
            found = failure.interpreter[:200]
            message = f"The interpreter {found!r} of the script was not found on the node."
        return Conclusion(
            Outcome.FAILED, Reason("command_not_found", message, details), NOT_FOUND_EXIT_CODE
        )
    message = f"{program[:200]!r} could not be executed: {os.strerror(failure.error)}."
    if failure.error == errno.ENOEXEC:
        message += " A script needs a first line such as #!/bin/sh."
    return Conclusion(
        Outcome.FAILED, Reason("command_not_executable", message, details), NOT_EXECUTABLE_EXIT_CODE
    )
