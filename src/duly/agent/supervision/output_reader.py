"""The outputs of running attempts that the supervisor reads from.

Reading takes the supervisor's time, which no task is charged for. So an output that brings too
much is left alone for a moment: its pipe fills up, and it is the task that waits.
"""

import select
from collections import Counter
from itertools import takewhile
from typing import Any

from duly.agent.attempt import Attempt
from duly.clock import monotonic

FLUSH_INTERVAL = 1.0
"""Seconds between two notes that an attempt has written more."""
PAUSE = 0.05
"""Seconds for which an output is left alone that has had all its reads."""
MAX_READS = 16
"""How often an output is read in as many seconds: with what a pipe holds, 20 MiB a second. One
that is full is read once, and its pipe holds more."""


class Outputs:
    """Reads what `poll` says is there, and tells now and then how much there is."""

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self._attempts: dict[int, Attempt] = {}
        """By the descriptor of their output."""
        self._written: dict[int, Attempt] = {}
        """Those that have written since they were last told of."""
        self.flush_at = float("inf")
        self._reads: Counter[int] = Counter()
        """How often each descriptor was read since `_reads_since`."""
        self._reads_since = float("-inf")
        self._paused: dict[int, float] = {}
        """Until when each descriptor is left alone; the first comes first."""

    def __contains__(self, fd: int) -> bool:
        return fd in self._attempts

    def add(self, attempt: Attempt) -> None:
        """Read the output of an attempt that has begun."""
        self._attempts[attempt.output.fd] = attempt
        self._poll.register(attempt.output.fd, select.EPOLLIN)

    def read(self, fd: int) -> None:
        """Take in what is there of one output."""
        attempt = self._attempts[fd]
        before = attempt.output.size
        if not attempt.output.read():
            self._poll.unregister(fd)
            del self._attempts[fd]
            return
        if attempt.output.size > before:
            if not self._written:
                self.flush_at = monotonic() + FLUSH_INTERVAL
            self._written[attempt.id] = attempt
        self._count(fd, 1 if attempt.output.is_full else MAX_READS)

    def _count(self, fd: int, most: int) -> None:
        """Count a read, and leave the output alone for a while if it has had `most`."""
        now = monotonic()
        if now - self._reads_since >= PAUSE:
            self._reads.clear()
            self._reads_since = now
        self._reads[fd] += 1
        if self._reads[fd] >= most:
            self._poll.unregister(fd)
            self._paused[fd] = now + PAUSE

    @property
    def resume_at(self) -> float:
        """When the next output is to be read again that was left alone; infinity if none was."""
        return next(iter(self._paused.values()), float("inf"))

    def resume(self, now: float) -> None:
        """Read again what has been left alone for long enough."""
        for fd in list(takewhile(lambda fd: self._paused[fd] <= now, self._paused)):
            del self._paused[fd]
            self._poll.register(fd, select.EPOLLIN)

    def close(self, attempt: Attempt) -> None:
        """Take in the rest of the output of an attempt that has ended."""
        attempt.output.drain()
        fd = attempt.output.fd
        is_paused = self._paused.pop(fd, None) is not None
        self._reads.pop(fd, None)  # Another output may have this descriptor next.
        if self._attempts.pop(fd, None) is not None and not is_paused:
            self._poll.unregister(fd)
        self._written.pop(attempt.id, None)
        attempt.output.close()

    def flush(self) -> list[Any]:
        """Put what was written where others can read it, and return the events that tell of it."""
        events = []
        for attempt in self._written.values():
            attempt.output.spill()
            events.append(["output", [attempt.id, attempt.output.size]])
        self._written.clear()
        self.flush_at = float("inf")
        return events
