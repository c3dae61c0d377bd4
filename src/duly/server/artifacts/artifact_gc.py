"""Garbage-collects artifacts that have long been unused, and orphaned bytes.

Rows are deleted before their bytes, so a crash leaves bytes without a row. A sweep, once a day
and whenever a server begins to lead, deletes bytes that have no row and are too old to belong to
an upload in progress.
"""

import logging

from duly import clock
from duly.config import RetentionSettings
from duly.server.artifacts.log_store import ID_BITS_BELOW_SECOND
from duly.server.artifacts.object_store import ObjectStore
from duly.server.artifacts.store_access import STORE_ERRORS, first_line
from duly.server.sequencer import EPOCH
from duly.store import database
from duly.store.database import Database
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.tasks import artifacts

log = logging.getLogger(__name__)
ARTIFACTS_PER_BATCH = 500
"""Artifacts removed in one transaction."""
USES_PER_BATCH = 5000
"""References checked in one transaction."""
SWEEP_INTERVAL_SECONDS = 86_400.0
MIN_ORPHAN_AGE_SECONDS = 86_400
"""Bytes without a row that are older than this cannot belong to an upload in progress."""


class ArtifactGc:
    """Removes artifacts that have been unused for the retention time."""

    def __init__(
        self, database: Database, settings: RetentionSettings, object_store: ObjectStore
    ) -> None:
        self._database = database
        self._settings = settings
        self._object_store = object_store
        self._cursor = 0
        self._swept_at: float | None = None
        self._swept_in_term: int | None = None

    async def step(self, term: Term) -> bool:
        """Check a batch of references and remove a batch of artifacts; True if there is more."""
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            last = await artifacts.drop_ended_uses(conn, above=self._cursor, limit=USES_PER_BATCH)
        # After the last page the scan begins again at the start.
        self._cursor = last or 0
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            removed = await artifacts.expire(
                conn, unused_for=self._settings.artifacts, limit=ARTIFACTS_PER_BATCH
            )
        try:
            for blob in removed:
                await self._object_store.drop(blob)
            await self._sweep_if_due(term)
        except STORE_ERRORS as error:
            # A later sweep deletes what is left.
            log.warning("cannot delete the bytes of artifacts", extra={"error": first_line(error)})
        if removed:
            log.info("removed %s unused artifacts", len(removed))
        return last is not None or len(removed) == ARTIFACTS_PER_BATCH

    async def _sweep_if_due(self, term: Term) -> None:
        at = clock.monotonic()
        is_due = self._swept_at is None or at - self._swept_at >= SWEEP_INTERVAL_SECONDS
        if is_due or self._swept_in_term != term.number:
            await self._sweep()
            self._swept_at, self._swept_in_term = at, term.number

    async def _sweep(self) -> None:
        """Delete bytes without an artifact, unless an upload in progress may own them."""
        async with self._database.connection() as conn:
            now = await database.now(conn)
        newest = int((now - EPOCH).total_seconds()) - MIN_ORPHAN_AGE_SECONDS
        for tenant_id in await self._object_store.tenants():
            async for keys_by_blob in self._object_store.blobs(tenant_id):
                old = [blob for blob in keys_by_blob if blob >> ID_BITS_BELOW_SECOND < newest]
                async with self._database.connection() as conn:
                    referenced = await artifacts.read_referenced_blobs(conn, old)
                for blob in old:
                    if blob not in referenced:
                        await self._object_store.delete(keys_by_blob[blob])
                        log.info("deleted orphaned bytes of an artifact")
