"""Keeps what grows with the store from taking more than its share of the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from duly import clock

SHARE = 20
"""One part in so many of the time, at most, if nothing else is said."""


class Pace:
    """Lets something be done so often, and more seldom when it takes long."""

    def __init__(
        self, interval: timedelta, longest: timedelta = timedelta.max, share: int = SHARE
    ) -> None:
        """Let it be done every `interval`, and every `longest` even if its share is too small.

        The share is one part in so many of the time. That one step took long may be because
        PostgreSQL stood still, which says nothing about the next one.
        """
        self._interval = interval.total_seconds()
        self._share = share
        self._longest = longest.total_seconds()
        self._next_at = float("-inf")
        self._is_hurried = False

    @property
    def is_due(self) -> bool:
        """Say whether its time has come."""
        return clock.monotonic() >= self._next_at

    def hurry(self) -> None:
        """Let its time come now; if it is being done, again."""
        self._next_at = float("-inf")
        self._is_hurried = True

    @contextmanager
    def step(self, among: int = 1) -> Iterator[None]:
        """Do it once, as one of so many that share the time; what fails stays due."""
        began_at = clock.monotonic()
        self._next_at = float("-inf")
        self._is_hurried = False
        yield
        if self._is_hurried:
            return
        took = clock.monotonic() - began_at
        pause = min(max(self._interval, self._share * took * among), self._longest)
        self._next_at = began_at + max(pause, took)
