"""The outputs of running attempts that the supervisor reads from."""

import select
from typing import Any

from duly.agent.attempt import Attempt
from duly.clock import monotonic

FLUSH_INTERVAL = 1.0
"""Seconds between two notes that an attempt has written more."""


class Outputs:
    """Reads what `poll` says is there, and tells now and then how much there is."""

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self._attempts: dict[int, Attempt] = {}
        """By the descriptor of their output."""
        self._written: dict[int, Attempt] = {}
        """Those that have written since they were last told of."""
        self.flush_at = float("inf")

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
        elif attempt.output.size > before:
            if not self._written:
                self.flush_at = monotonic() + FLUSH_INTERVAL
            self._written[attempt.id] = attempt

    def close(self, attempt: Attempt) -> None:
        """Take in the rest of the output of an attempt that has ended."""
        attempt.output.drain()
        if self._attempts.pop(attempt.output.fd, None) is not None:
            self._poll.unregister(attempt.output.fd)
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
