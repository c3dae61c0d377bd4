"""The local state of an attempt, whatever runs it, and the file that keeps its output."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from duly.agent.reporting.task_rate import TaskRateLimiter
from duly.agent.supervision.outcome import Conclusion
from duly.clock import monotonic
from duly.model.task import Outcome, Usage
from duly.wire import MAX_LOG_TAIL_BYTES, AttemptRef, AttemptReport, Throttled


@dataclass(slots=True)
class LocalAttempt:
    """The local state of an attempt, from its start until it is forgotten."""

    ref: AttemptRef
    id: int
    """Its number on this node."""
    spool: str
    execution_cap: float
    result_limit: int
    tenant: int | None = None
    """The tenant that owns the task."""
    uses: tuple[str, ...] = ()
    """The keys of the downstreams that it calls."""
    log_size: int = 0
    log: bytes | None = b""
    """Its complete output; None if that is in the spool file."""
    log_notice: bytes = b""
    """Appended to the contents of the spool file, which had no room for it."""
    assigned_at: float = field(default_factory=monotonic)
    ended_at: float | None = None
    ran: float | None = None
    usage: Usage | None = None
    result: bytes | None = None
    rate_limiter: TaskRateLimiter | None = None
    """Set once the task has connected to the agent's socket."""
    throttled: dict[str, float] | None = None
    """When it may call again each downstream that has throttled it, by the monotonic clock."""
    untold: set[str] | None = None
    """Those of which the servers do not know yet."""

    def add_throttled(self, report: Throttled, now: float) -> None:
        """Remember that a downstream has throttled it."""
        self.throttled = {**(self.throttled or {}), report.key: now + report.retry_after}
        self.untold = {*(self.untold or ()), report.key}

    def throttled_by(self, now: float, *, is_over: bool = False) -> list[Throttled]:
        """Return what the servers do not know yet, and at its end what it still waits for."""
        untold, throttled = self.untold or set(), self.throttled or {}
        return [
            Throttled(key, max(0.0, until - now))
            for key, until in throttled.items()
            if key in untold or (is_over and until > now)
        ]

    def read_log(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of its output from `offset` on."""
        return read_spool(self.spool, offset, size)

    def tail(self) -> bytes:
        """Return the end of its output, which the report carries."""
        if self.log is not None:
            return self.log
        start = max(0, self.log_size - MAX_LOG_TAIL_BYTES)
        return self.read_log(start, MAX_LOG_TAIL_BYTES) + self.log_notice

    def remove_log(self) -> None:
        """Remove the spool file, if there is one."""
        if self.log is None:
            Path(self.spool).unlink(missing_ok=True)


def report_of(
    ref: AttemptRef, conclusion: Conclusion, attempt: LocalAttempt | None
) -> AttemptReport:
    """Build the report of an attempt that has ended; without `attempt`, it never started here."""
    report = AttemptReport(
        ref=ref,
        outcome=conclusion.outcome,
        exit_code=conclusion.exit_code,
        reason=conclusion.reason,
    )
    if attempt is not None:
        report.ran = attempt.ran
        report.usage = attempt.usage
        report.tail = attempt.tail()
        report.log_size = attempt.log_size
        if attempt.throttled:
            report.throttled = attempt.throttled_by(monotonic(), is_over=True)
        if conclusion.outcome is Outcome.SUCCEEDED:
            report.result = attempt.result
            report.result_limit = attempt.result_limit
    return report


def name_of(ref: AttemptRef) -> str:
    """Return the name of an attempt in the spool and in logs, which tasks cannot read.

    It includes the token: a database that has lost its last commits reuses attempt numbers.
    """
    return f"{ref.task}-{ref.attempt}-{ref.token}"


def read_spool(path: str, offset: int, size: int) -> bytes:
    """Return up to `size` bytes of a spool file; fewer at its end, none if it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
