"""When it may be believed that a silent node is gone."""

from datetime import datetime, timedelta

from duly import clock
from duly.store.servers import Term

CLOCK_STEP = timedelta(seconds=1)
"""A jump of PostgreSQL's clock against ours that is not mere jitter."""


class Patience:
    """Holds expiry back for one TTL whenever the nodes may have been unable to renew.

    After a restart of PostgreSQL, a step of its clock, a change of leader, or a time in which
    not even the leader could renew, a lease that looks expired says nothing about its node.
    Nor does it when nobody could look for a whole TTL: what kept us waiting, say a locked table,
    has kept the heartbeats waiting, too.
    """

    def __init__(self, ttl: timedelta) -> None:
        self._ttl = ttl
        self._seen: tuple[Term, float, datetime, float] | None = None
        self._until = 0.0
        self._looked_at = 0.0

    def is_over(self, term: Term, led_since: float, started_at: datetime, at: datetime) -> bool:
        """Say whether leases that have run out may be expired."""
        looked_at, self._looked_at = self._looked_at, clock.monotonic()
        offset = at.timestamp() - self._looked_at
        is_new = (
            self._seen is None
            or self._looked_at - looked_at > self._ttl.total_seconds()
            or self._seen[:3] != (term, led_since, started_at)
            or abs(self._seen[3] - offset) > CLOCK_STEP.total_seconds()
        )
        self._seen = (term, led_since, started_at, offset)
        if is_new:
            self._until = self._looked_at + self._ttl.total_seconds()
        return self._looked_at >= self._until
