"""Writes down what was used, while this server leads.

Attempts are booked in the order of their numbers. A number is drawn before its attempt is
committed, so the last one that was given out says little about what can be seen. So: read
it, draw a line behind everybody who may hold it or a lower one, and wait until they are
through. What is below it then is all there will ever be.
"""

import asyncio
import logging
from datetime import timedelta

from duly import clock
from duly.config import UsageSettings
from duly.policy.price import TARIFF
from duly.server.cluster_manager import ClusterManager
from duly.server.service import Service
from duly.store import servers, usage
from duly.store.database import Connection, Database
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 5000
"""Attempts that are booked in one transaction, at most."""
SHARE = 4
"""A pause is at least so many times as long as what was done before it."""
TRIES = 10
PATIENCE = 0.005
"""Seconds before looking again whether others are through; doubled each time."""


class Bookkeeper(Service):
    """Keeps the books of usage close behind what happens."""

    def __init__(
        self, database: Database, settings: UsageSettings, cluster_manager: ClusterManager
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._cluster_manager = cluster_manager
        self._took = 0.0
        self._waits = False

    def pause(self) -> timedelta:
        """Rest longer when there was much to do."""
        return max(self._interval, timedelta(seconds=SHARE * self._took))

    async def tick(self) -> bool:
        """Book what can be booked, a batch at a time."""
        term = self._cluster_manager.term
        if term is None:
            return False
        began_at = clock.monotonic()
        # One connection, and so one server: after a failover transaction ids mean something else.
        async with self._database.connection() as conn:
            marks = await usage.read_marks(conn)
            if marks.given > marks.booked_to and await self._is_settled(conn):
                while await self._book(conn, term, marks.given):
                    pass
            elif marks.given < marks.booked_to:
                await usage.raise_entries(conn)
        self._took = clock.monotonic() - began_at
        return False

    async def _is_settled(self, conn: Connection) -> bool:
        """Wait until all have ended who have drawn a number so far; give up after a while."""
        line = await usage.draw_line(conn)
        for attempt in range(TRIES):
            if await usage.is_over(conn, line):
                self._waits = False
                return True
            await asyncio.sleep(PATIENCE * 2**attempt)
        if not self._waits:
            log.warning("the books of usage wait for a transaction that has been open for long")
        self._waits = True
        return False

    async def _book(self, conn: Connection, term: Term, settled: int) -> bool:
        """Book one batch of what is settled; return whether there is more."""
        async with conn.transaction():
            await servers.hold(conn, term)
            above = await usage.lock_books(conn)
            up_to = min(settled, above + BATCH)
            if up_to > above:
                await usage.book(conn, TARIFF, above=above, up_to=up_to)
        return up_to < settled
