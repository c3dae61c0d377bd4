"""Delays the expiry of silent nodes while they may have been unable to renew their leases."""

from datetime import datetime, timedelta

from duly import clock
from duly.store.fleet.servers import Term

MAX_CLOCK_JITTER = timedelta(seconds=1)
"""A larger jump of PostgreSQL's clock against ours is a step of the clock."""


class ExpiryGrace:
    """Grants one TTL of grace whenever nodes may have been unable to renew.

    After a restart of PostgreSQL, a step of its clock, a change of leader, or a time in which
    not even the leader could renew its term, a lease that looks expired says nothing about its
    node. The same holds after a whole TTL without a check: what delayed the check, such as a
    locked table, has delayed the heartbeats, too.
    """

    def __init__(self, ttl: timedelta) -> None:
        self._ttl = ttl
        self._conditions: tuple[Term, float, datetime, float] | None = None
        self._grace_ends_at = 0.0
        self._checked_at = 0.0

    def is_over(self, term: Term, led_since: float, started_at: datetime, at: datetime) -> bool:
        """Return True if leases past their TTL may be expired now.

        `started_at` is when PostgreSQL started, `at` is its current time.
        """
        last_checked_at, self._checked_at = self._checked_at, clock.monotonic()
        offset = at.timestamp() - self._checked_at
        is_disturbed = (
            self._conditions is None
            or self._checked_at - last_checked_at > self._ttl.total_seconds()
            or self._conditions[:3] != (term, led_since, started_at)
            or abs(self._conditions[3] - offset) > MAX_CLOCK_JITTER.total_seconds()
        )
        self._conditions = (term, led_since, started_at, offset)
        if is_disturbed:
            self._grace_ends_at = self._checked_at + self._ttl.total_seconds()
        return self._checked_at >= self._grace_ends_at
