"""Remembers how far each node is trusted, for as long as that is not worth asking again."""

from collections.abc import Mapping
from datetime import timedelta

from duly import clock
from duly.policy import health
from duly.store import nodes
from duly.store.database import Connection

WINDOW = timedelta(minutes=10)
"""How far back a node's record goes."""
REMEMBERED = timedelta(seconds=5)


class Health:
    """The penalties of nodes that had trouble lately."""

    def __init__(self) -> None:
        self._penalties: dict[int, int] = {}
        self._good_until = float("-inf")

    async def penalties(self, conn: Connection) -> Mapping[int, int]:
        """Return the penalty of every node that has one."""
        if clock.monotonic() >= self._good_until:
            records = await nodes.read_records(conn, window=WINDOW)
            self._penalties = {
                node: found
                for node, record in records.items()
                if (found := health.penalty(health.Record(*record)))
            }
            self._good_until = clock.monotonic() + REMEMBERED.total_seconds()
        return self._penalties
