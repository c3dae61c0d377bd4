"""Limits the share of time that a periodic job takes, for jobs that grow with the database."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from duly import clock

DEFAULT_DUTY_DIVISOR = 20
"""A job takes at most 1/20 of the time."""


class DutyCycle:
    """Decides when a periodic job is due: every interval, and less often when it takes long."""

    def __init__(
        self,
        interval: timedelta,
        max_interval: timedelta = timedelta.max,
        duty_divisor: int = DEFAULT_DUTY_DIVISOR,
    ) -> None:
        """Make the job due every `interval`, and at the latest every `max_interval`.

        In between, the interval grows until the job takes at most 1/`duty_divisor` of the time.
        `max_interval` is there because one slow run may be due to a stall of PostgreSQL, which says
        nothing about the next run.
        """
        self._interval = interval.total_seconds()
        self._duty_divisor = duty_divisor
        self._max_interval = max_interval.total_seconds()
        self._next_at = float("-inf")
        self._is_made_due = False

    @property
    def is_due(self) -> bool:
        """Return True if the job should run now."""
        return clock.monotonic() >= self._next_at

    def make_due(self) -> None:
        """Make the job due now; if it is running, once more after that."""
        self._next_at = float("-inf")
        self._is_made_due = True

    @contextmanager
    def step(self, among: int = 1) -> Iterator[None]:
        """Run the job as the block, one of `among` that share the time; a failed job stays due."""
        began_at = clock.monotonic()
        self._next_at = float("-inf")
        self._is_made_due = False
        yield
        if self._is_made_due:
            return
        took = clock.monotonic() - began_at
        pause = min(max(self._interval, self._duty_divisor * took * among), self._max_interval)
        self._next_at = began_at + max(pause, took)
