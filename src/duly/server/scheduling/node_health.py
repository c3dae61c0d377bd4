"""Caches the penalties of unhealthy nodes, which placement avoids."""

from collections.abc import Mapping
from datetime import timedelta

from duly import clock
from duly.policy import health
from duly.store.database import Connection
from duly.store.fleet import nodes

RECORD_WINDOW = timedelta(minutes=10)
"""How far back a node's record goes."""
CACHE_TTL = timedelta(seconds=5)


class NodeHealth:
    """The penalties of nodes whose attempts had trouble lately."""

    def __init__(self) -> None:
        self._penalties: dict[int, int] = {}
        self._expires_at = float("-inf")

    async def penalties(self, conn: Connection) -> Mapping[int, int]:
        """Return the penalty of every node that has one."""
        if clock.monotonic() >= self._expires_at:
            records = await nodes.read_records(conn, window=RECORD_WINDOW)
            self._penalties = {
                node: penalty
                for node, record in records.items()
                if (penalty := health.penalty(health.NodeRecord(*record)))
            }
            self._expires_at = clock.monotonic() + CACHE_TTL.total_seconds()
        return self._penalties
