"""Reads the outputs of running attempts in the supervisor.

Reading takes the supervisor's time, which no task is charged for. So an output that delivers too
much is paused for a moment: its pipe fills up, and back-pressure makes the task wait.
"""

import select
from collections import Counter
from itertools import takewhile
from typing import Any

from duly.agent.supervision.attempt import SupervisedAttempt
from duly.clock import monotonic

FLUSH_INTERVAL_SECONDS = 1.0
"""Seconds between two events that attempts have written more."""
PAUSE_SECONDS = 0.05
"""Seconds for which an output is paused once it has used up its reads of the period."""
MAX_READS_PER_PERIOD = 16
"""Reads of an output per PAUSE_SECONDS: at the size of a pipe, 20 MiB a second. An output whose
data is dropped is read once, from a larger pipe."""


class OutputReader:
    """Reads outputs that `poll` reports as ready, and periodically reports their sizes."""

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self._attempts: dict[int, SupervisedAttempt] = {}
        """By the descriptor of the output."""
        self._written: dict[int, SupervisedAttempt] = {}
        """Attempts that have written since the last flush, by id."""
        self.flush_at = float("inf")
        self._reads: Counter[int] = Counter()
        """Reads of each descriptor since `_reads_since`."""
        self._reads_since = float("-inf")
        self._paused: dict[int, float] = {}
        """Until when each descriptor is paused, earliest first."""

    def __contains__(self, fd: int) -> bool:
        return fd in self._attempts

    def add(self, attempt: SupervisedAttempt) -> None:
        """Start reading the output of an attempt that has begun."""
        self._attempts[attempt.output.fd] = attempt
        self._poll.register(attempt.output.fd, select.EPOLLIN)

    def read(self, fd: int) -> None:
        """Read the available data of one output."""
        attempt = self._attempts[fd]
        before = attempt.output.size
        if not attempt.output.read():
            self._poll.unregister(fd)
            del self._attempts[fd]
            return
        if attempt.output.size > before:
            if not self._written:
                self.flush_at = monotonic() + FLUSH_INTERVAL_SECONDS
            self._written[attempt.id] = attempt
        self._count(fd, 1 if attempt.output.is_full else MAX_READS_PER_PERIOD)

    def _count(self, fd: int, most: int) -> None:
        """Count a read, and pause the output if it has had `most` in this period."""
        now = monotonic()
        if now - self._reads_since >= PAUSE_SECONDS:
            self._reads.clear()
            self._reads_since = now
        self._reads[fd] += 1
        if self._reads[fd] >= most:
            self._poll.unregister(fd)
            self._paused[fd] = now + PAUSE_SECONDS

    @property
    def resume_at(self) -> float:
        """When the next paused output is to be resumed; infinity if none is paused."""
        return next(iter(self._paused.values()), float("inf"))

    def resume(self, now: float) -> None:
        """Resume the outputs whose pause is over."""
        for fd in list(takewhile(lambda fd: self._paused[fd] <= now, self._paused)):
            del self._paused[fd]
            self._poll.register(fd, select.EPOLLIN)

    def close(self, attempt: SupervisedAttempt) -> None:
        """Read the rest of the output of an attempt that has ended, and close it."""
        attempt.output.drain()
        fd = attempt.output.fd
        is_paused = self._paused.pop(fd, None) is not None
        self._reads.pop(fd, None)  # The descriptor may be reused for another output.
        if self._attempts.pop(fd, None) is not None and not is_paused:
            self._poll.unregister(fd)
        self._written.pop(attempt.id, None)
        attempt.output.close()

    def flush(self) -> list[Any]:
        """Move new output to the spool files, and return the events that announce it."""
        events = []
        for attempt in self._written.values():
            attempt.output.spill()
            events.append(["output", [attempt.id, attempt.output.size]])
        self._written.clear()
        self.flush_at = float("inf")
        return events
