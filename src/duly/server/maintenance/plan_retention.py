"""Removes the history of tenants whose plans keep it for less long than the server does.

A tenant's tasks are scanned in the order of their ids, up to the first day whose ended tasks
the plan still keeps. There is one scan per day, so a tenant with nothing to remove costs one
query a day. The next scan begins at the first old task that had to be kept (it ended later, or
is still needed): ids only grow, so nothing appears below it between two scans. The cursors are
only a cache; without them the scans begin at the start.

Decision: docs/adr/0023-per-plan-retention.md.
"""

import logging
from collections.abc import Collection, Iterable, Sequence

import msgspec

from duly.config import RetentionSettings
from duly.server.artifacts.log_store import LogStore
from duly.store.database import Database
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.maintenance import history
from duly.store.maintenance.history import AgedTask, RetentionCutoff

log = logging.getLogger(__name__)
TASKS_PER_BATCH = 500
"""Tasks scanned in one transaction."""
TENANTS_PER_STATEMENT = 1000
"""Tenants whose tasks are read by one statement."""


class RetentionCursor(msgspec.Struct, frozen=True):
    """How far a tenant's history has been scanned."""

    scanned_day: int = -1
    """The day of the last complete scan."""
    next_id: int = 0
    """The id at which the scan continues."""
    first_kept: int | None = None
    """The first task that the current scan has kept."""

    def advance(self, scanned: Sequence[int], removed: Collection[int]) -> "RetentionCursor":
        """Return the cursor after some tasks that do not complete the scan."""
        kept = [task for task in scanned if task not in removed]
        first_kept = self.first_kept if self.first_kept is not None or not kept else kept[0]
        next_id = scanned[-1] + 1 if scanned else self.next_id
        return RetentionCursor(self.scanned_day, next_id, first_kept)

    def complete(self, tenant: RetentionCutoff) -> "RetentionCursor":
        """Return the cursor at the end of a scan."""
        next_id = tenant.end_id if self.first_kept is None else self.first_kept
        return RetentionCursor(tenant.day, next_id)


class RetentionCursors:
    """The cursors of the tenants whose plans shorten retention."""

    def __init__(self) -> None:
        self._cursors: dict[int, RetentionCursor] = {}

    def due(self, tenants: Iterable[RetentionCutoff]) -> list[RetentionCutoff]:
        """Return the tenants for which a new day has begun since their last complete scan."""
        return [tenant for tenant in tenants if self._of(tenant).scanned_day < tenant.day]

    def first_ids(self, tenants: Iterable[RetentionCutoff]) -> list[int]:
        """Return for each tenant the id at which its scan continues."""
        return [self._of(tenant).next_id for tenant in tenants]

    def advance(
        self,
        tenants: Iterable[RetentionCutoff],
        scanned: Sequence[AgedTask],
        removed: Collection[int],
        *,
        is_all: bool,
    ) -> None:
        """Advance the cursors of `tenants`, which were scanned in this order.

        Unless `is_all`, the batch was full: the last tenant in it has more tasks, and those
        after it have not been scanned.
        """
        ids: dict[int, list[int]] = {}
        for task in scanned:
            ids.setdefault(task.tenant_id, []).append(task.id)
        last = None if is_all else scanned[-1].tenant_id
        for tenant in tenants:
            cursor = self._of(tenant).advance(ids.get(tenant.tenant_id, []), removed)
            if tenant.tenant_id == last:
                self._cursors[tenant.tenant_id] = cursor
                return
            self._cursors[tenant.tenant_id] = cursor.complete(tenant)

    def _of(self, tenant: RetentionCutoff) -> RetentionCursor:
        return self._cursors.get(tenant.tenant_id, RetentionCursor())


class PlanRetention:
    """Scans the history of tenants whose plans keep less, a batch at a time."""

    def __init__(
        self, database: Database, settings: RetentionSettings, log_store: LogStore
    ) -> None:
        self._database = database
        self._settings = settings
        self._log_store = log_store
        self._cursors = RetentionCursors()
        self._pending_logs: list[int] = []

    async def step(self, term: Term) -> bool:
        """Remove a batch; return whether there is more to scan."""
        await self._drop_logs()
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            retained = await history.read_cutoffs(conn, history=self._settings.history)
            due = self._cursors.due(retained)
            tenants = due[:TENANTS_PER_STATEMENT]
            if not tenants:
                return False
            first_ids = self._cursors.first_ids(tenants)
            aged = await history.read_aged(conn, tenants, first_ids, limit=TASKS_PER_BATCH)
            removed = await history.delete_aged(conn, aged)
        is_all = len(aged) < TASKS_PER_BATCH
        self._cursors.advance(tenants, aged, {task.id for task in removed}, is_all=is_all)
        self._pending_logs += [task.id for task in removed if task.has_run]
        if removed:
            log.info("removed %s tasks older than the retention of their plans", len(removed))
        await self._drop_logs()
        return not is_all or len(due) > len(tenants)

    async def _drop_logs(self) -> None:
        """Delete the logs of removed tasks; after the tasks, so that a task always has its log.

        A deletion that fails is tried again; at the latest, logs are deleted with their day.
        """
        if self._pending_logs:
            await self._log_store.drop(self._pending_logs)
            self._pending_logs = []
