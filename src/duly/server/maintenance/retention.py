"""Creates the history partitions of coming days, and drops those past their retention."""

import logging

from duly.config import RetentionSettings
from duly.server.artifacts.artifact_gc import ArtifactGc
from duly.server.artifacts.log_store import LogStore
from duly.server.artifacts.object_store import ObjectStore
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.maintenance.plan_retention import PlanRetention
from duly.server.service import Service
from duly.store.accounts import usage
from duly.store.database import Database
from duly.store.fleet import reservations, servers
from duly.store.fleet.servers import Term
from duly.store.maintenance import history
from duly.store.tasks import schedules

log = logging.getLogger(__name__)
ROWS_PER_BATCH = 5000


class Retention(Service):
    """Enforces the retention settings while this server leads."""

    def __init__(
        self,
        database: Database,
        settings: RetentionSettings,
        cluster_manager: ClusterManager,
        log_store: LogStore,
        object_store: ObjectStore,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        self._log_store = log_store
        self._plan_retention = PlanRetention(database, settings, log_store)
        self._artifact_gc = ArtifactGc(database, settings, object_store)

    async def tick(self) -> bool:
        """Create partitions ahead, and remove a batch of everything past its retention.

        That is one old day, idempotency keys, fire times and usage; the history of tenants whose
        plans keep less; and artifacts that have long been unused.
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
            keys = await history.drop_submissions(
                conn, older_than=self._settings.idempotency_keys, limit=ROWS_PER_BATCH
            )
            ended = await history.drop_outlived(
                conn, older_than=self._settings.history, limit=ROWS_PER_BATCH
            )
            graphs = await history.drop_graphs(
                conn, older_than=self._settings.history, limit=ROWS_PER_BATCH
            )
            fired = await schedules.drop_occurrences(
                conn, older_than=self._settings.history, limit=ROWS_PER_BATCH
            )
            used = await usage.drop(conn, older_than=self._settings.usage, limit=ROWS_PER_BATCH)
        days = await self._drop_oldest_day(term)
        has_more = await self._plan_retention.step(term)
        has_more = await self._artifact_gc.step(term) or has_more
        return has_more or days > 1 or ROWS_PER_BATCH in (keys, ended, graphs, fired, used)

    async def _drop_oldest_day(self, term: Term) -> int:
        """Drop the oldest day past its retention; return how many such days there were."""
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            days = await history.read_days(conn, older_than=self._settings.history)
            if days:
                survivors = await history.read_survivors(conn, days[0])
                await history.drop_day(conn, days[0])
        if days:
            await self._log_store.drop_before(days[0] + 1, keep=survivors)
            log.info("dropped day %s of history", days[0])
        return len(days)
