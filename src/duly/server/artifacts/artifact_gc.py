"""Removes artifacts that nobody has needed for long, and bytes that are nobody's.

Rows go first and their bytes after them, so that a crash leaves bytes without a row. These are
looked for once a day, and by every server that begins to lead: whatever is older than any
upload can be, and has no row, is deleted.
"""

import logging

from duly import clock
from duly.config import RetentionSettings
from duly.server.archive import FAILURES, Archive
from duly.server.logbook import BITS_BELOW_THE_SECOND
from duly.server.sequencer import EPOCH
from duly.store import artifacts, database, servers
from duly.store.database import Database
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 500
"""Artifacts that are removed in one transaction."""
USES = 5000
"""Uses that are gone through in one."""
SWEEP_EVERY = 86_400.0
OLD = 86_400
"""Seconds after which bytes without a row are no upload that is still under way."""


class Curator:
    """Keeps artifacts for as long as they are needed, and some time more."""

    def __init__(self, database: Database, settings: RetentionSettings, archive: Archive) -> None:
        self._database = database
        self._settings = settings
        self._archive = archive
        self._settled_to = 0
        self._swept_at: float | None = None
        self._swept_in: int | None = None

    async def step(self, term: Term) -> bool:
        """Go through a batch of what there is; return whether there is more."""
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            last = await artifacts.settle_uses(conn, above=self._settled_to, limit=USES)
        # At the end the next walk begins at the start.
        self._settled_to = last or 0
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            gone = await artifacts.expire(conn, unused_for=self._settings.artifacts, limit=BATCH)
        try:
            for blob in gone:
                await self._archive.drop(blob)
            await self._sweep_if_due(term)
        except FAILURES as error:
            # What is left is swept up another time.
            log.warning("cannot delete the bytes of artifacts", extra={"error": str(error)})
        if gone:
            log.info("removed %s artifacts that nobody needed", len(gone))
        return last is not None or len(gone) == BATCH

    async def _sweep_if_due(self, term: Term) -> None:
        at = clock.monotonic()
        is_due = self._swept_at is None or at - self._swept_at >= SWEEP_EVERY
        if is_due or self._swept_in != term.number:
            await self._sweep()
            self._swept_at, self._swept_in = at, term.number

    async def _sweep(self) -> None:
        """Delete the bytes that no artifact has, unless they may be on their way to one."""
        async with self._database.connection() as conn:
            now = await database.now(conn)
        newest = int((now - EPOCH).total_seconds()) - OLD
        for tenant_id in await self._archive.tenants():
            async for found in self._archive.blobs(tenant_id):
                old = [blob for blob in found if blob >> BITS_BELOW_THE_SECOND < newest]
                async with self._database.connection() as conn:
                    known = await artifacts.known_blobs(conn, old)
                for blob in old:
                    if blob not in known:
                        await self._archive.delete(found[blob])
                        log.info("deleted bytes of an artifact that is not there")
