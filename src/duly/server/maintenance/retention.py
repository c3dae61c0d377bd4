"""Makes the days to come, and drops those that nobody needs any more."""

import logging

from duly.config import RetentionSettings
from duly.server.archive import Archive
from duly.server.cluster_manager import ClusterManager
from duly.server.curator import Curator
from duly.server.forgetter import Forgetter
from duly.server.logbook import Logbook
from duly.server.service import Service
from duly.store import history, reservations, schedules, servers, usage
from duly.store.database import Database
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 5000


class Retention(Service):
    """Keeps history as long as the settings say, while this server leads."""

    def __init__(
        self,
        database: Database,
        settings: RetentionSettings,
        cluster_manager: ClusterManager,
        logbook: Logbook,
        archive: Archive,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        self._logbook = logbook
        self._forgetter = Forgetter(database, settings, logbook)
        self._curator = Curator(database, settings, archive)

    async def tick(self) -> bool:
        """Make partitions ahead, drop one old day, forget old keys, fire times and books.

        And of tenants whose plans keep less, a batch of what they do not keep; and a batch of
        the artifacts that nobody has needed for long.
        """
        term = self._cluster_manager.term
        if term is None:
            return False
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            await history.ensure_days(conn)
            await history.drop_leftovers(conn, older_than=self._settings.history)
            await reservations.drop_expired(conn)
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            forgotten = await history.drop_submissions(
                conn, older_than=self._settings.idempotency_keys, limit=BATCH
            )
            ended = await history.drop_rest(conn, older_than=self._settings.history, limit=BATCH)
            graphs = await history.drop_graphs(conn, older_than=self._settings.history, limit=BATCH)
            fired = await schedules.drop_occurrences(
                conn, older_than=self._settings.history, limit=BATCH
            )
            used = await usage.drop(conn, older_than=self._settings.usage, limit=BATCH)
        days = await self._drop_oldest_day(term)
        more = await self._forgetter.step(term)
        more = await self._curator.step(term) or more
        return more or days > 1 or BATCH in (forgotten, ended, graphs, fired, used)

    async def _drop_oldest_day(self, term: Term) -> int:
        """Drop the oldest day that is out of retention; return how many there were."""
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            days = await history.read_days(conn, older_than=self._settings.history)
            if days:
                survivors = await history.read_survivors(conn, days[0])
                await history.drop_day(conn, days[0])
        if days:
            await self._logbook.drop_before(days[0] + 1, keep=survivors)
            log.info("dropped day %s of history", days[0])
        return len(days)
