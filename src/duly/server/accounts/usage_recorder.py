"""Records the usage of ended attempts in the usage ledger, while this server leads.

Attempts are recorded in the order of their numbers, up to a watermark. A number is drawn before
its attempt commits, so lower numbers than the last one may still appear. So the recorder reads
the last number, notes the transactions that may hold it or a lower one, and waits until they
have ended. After that no number up to the watermark can appear any more.

Decision: docs/adr/0015-usage-ledger.md.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly import clock
from duly.config import UsageSettings
from duly.policy.price import TARIFF
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.service import Service
from duly.store.accounts import usage
from duly.store.database import Connection, Database
from duly.store.fleet import servers
from duly.store.fleet.servers import Term

log = logging.getLogger(__name__)
ATTEMPTS_PER_BATCH = 5000
"""The most attempts recorded in one transaction."""
MIN_PAUSE_FACTOR = 4
"""A pause lasts at least this many times as long as the tick before it."""
MAX_SETTLE_CHECKS = 10
FIRST_SETTLE_DELAY_SECONDS = 0.005
"""The delay before checking again whether those transactions have ended; doubled each time."""


BatchStep = Callable[[Connection, int, int], Awaitable[None]]
"""Handles the attempts with numbers above one and up to another."""


class UsageRecorder(Service):
    """Keeps the usage ledger up to date, shortly behind the attempts."""

    def __init__(
        self,
        database: Database,
        settings: UsageSettings,
        cluster_manager: ClusterManager,
        learn: BatchStep,
    ) -> None:
        """Record usage; `learn` gets every attempt once, in the transaction that records it."""
        super().__init__(settings.interval)
        self._database = database
        self._cluster_manager = cluster_manager
        self._learn = learn
        self._took = 0.0
        self._is_blocked = False

    def pause(self) -> timedelta:
        """Wait longer after a long tick."""
        return max(self._interval, timedelta(seconds=MIN_PAUSE_FACTOR * self._took))

    async def tick(self) -> bool:
        """Record all settled attempts, a batch at a time."""
        term = self._cluster_manager.term
        if term is None:
            return False
        began_at = clock.monotonic()
        # On one connection, so that a failover in between fails: transaction ids differ after it.
        async with self._database.connection() as conn:
            marks = await usage.read_watermarks(conn)
            if marks.given > marks.booked_to and await self._is_settled(conn):
                while await self._record_batch(conn, term, marks.given):
                    pass
            elif marks.given < marks.booked_to:
                await usage.advance_entry_sequence(conn)
        self._took = clock.monotonic() - began_at
        return False

    async def _is_settled(self, conn: Connection) -> bool:
        """Wait until the transactions that drew a number so far have ended; False on timeout."""
        horizon = await usage.next_transaction_id(conn)
        for check in range(MAX_SETTLE_CHECKS):
            if await usage.have_ended_before(conn, horizon):
                self._is_blocked = False
                return True
            await asyncio.sleep(FIRST_SETTLE_DELAY_SECONDS * 2**check)
        if not self._is_blocked:
            log.warning("the usage ledger waits for a long-running transaction")
        self._is_blocked = True
        return False

    async def _record_batch(self, conn: Connection, term: Term, settled: int) -> bool:
        """Record one batch of settled attempts; return whether there is more."""
        async with conn.transaction():
            await servers.hold(conn, term)
            above = await usage.lock_ledger(conn)
            up_to = min(settled, above + ATTEMPTS_PER_BATCH)
            if up_to > above:
                await usage.record(conn, TARIFF, above=above, up_to=up_to)
                await self._learn(conn, above, up_to)
        return up_to < settled
