"""Forgets what tenants do not keep as long as the server does, because of their plans.

A tenant's tasks are gone through in the order of their ids, up to the first day of which
it keeps what ended. That is done once for each day, so a tenant with nothing to forget
costs one look a day. What is kept although it is old (it ended later, or somebody still
needs it) is where the next walk begins: between two walks nothing comes to lie below it,
for ids only grow. All that is remembered here could be found again from the start.
"""

import logging
from collections.abc import Collection, Iterable, Sequence

import msgspec

from duly.config import RetentionSettings
from duly.server.logbook import Logbook
from duly.store import history, servers
from duly.store.database import Database
from duly.store.history import Aged, Retained
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 500
"""Tasks that are looked at in one transaction."""
TENANTS = 1000
"""Whose tasks are looked for in one statement."""


class Trail(msgspec.Struct, frozen=True):
    """How far a tenant's history was gone through."""

    walked_to: int = -1
    """The day of the last walk that came to its end."""
    next_id: int = 0
    """Where to go on."""
    kept: int | None = None
    """The first task that was passed by and left there, in the walk that is under way."""

    def go_on(self, seen: Sequence[int], forgotten: Collection[int]) -> "Trail":
        """Return the trail after some tasks, which are not the last ones of the walk."""
        left = [task for task in seen if task not in forgotten]
        kept = self.kept if self.kept is not None or not left else left[0]
        return Trail(self.walked_to, seen[-1] + 1 if seen else self.next_id, kept)

    def end(self, tenant: Retained) -> "Trail":
        """Return the trail at the end of a walk."""
        return Trail(tenant.day, tenant.end_id if self.kept is None else self.kept)


class Trails:
    """How far the history of every tenant was gone through that keeps less than others."""

    def __init__(self) -> None:
        self._trails: dict[int, Trail] = {}

    def due(self, tenants: Iterable[Retained]) -> list[Retained]:
        """Return the tenants that have come to a new day since they were gone through."""
        return [one for one in tenants if self._of(one).walked_to < one.day]

    def first_ids(self, tenants: Iterable[Retained]) -> list[int]:
        """Return where to go on with each of some tenants."""
        return [self._of(one).next_id for one in tenants]

    def note(
        self,
        tenants: Iterable[Retained],
        seen: Sequence[Aged],
        forgotten: Collection[int],
        *,
        is_all: bool,
    ) -> None:
        """Remember what was seen of `tenants`, in their order; unless `is_all`, there is more.

        Then the last one that was seen is not at its end, and those behind it were not looked at.
        """
        ids: dict[int, list[int]] = {}
        for one in seen:
            ids.setdefault(one.tenant_id, []).append(one.id)
        last = None if is_all else seen[-1].tenant_id
        for tenant in tenants:
            trail = self._of(tenant).go_on(ids.get(tenant.tenant_id, []), forgotten)
            if tenant.tenant_id == last:
                self._trails[tenant.tenant_id] = trail
                return
            self._trails[tenant.tenant_id] = trail.end(tenant)

    def _of(self, tenant: Retained) -> Trail:
        return self._trails.get(tenant.tenant_id, Trail())


class Forgetter:
    """Goes through the history of tenants whose plans keep less, a batch at a time."""

    def __init__(self, database: Database, settings: RetentionSettings, logbook: Logbook) -> None:
        self._database = database
        self._settings = settings
        self._logbook = logbook
        self._trails = Trails()
        self._logs: list[int] = []

    async def step(self, term: Term) -> bool:
        """Forget a batch; return whether there is more to go through."""
        await self._drop_logs()
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            retained = await history.read_retained(conn, history=self._settings.history)
            due = self._trails.due(retained)
            tenants = due[:TENANTS]
            if not tenants:
                return False
            first_ids = self._trails.first_ids(tenants)
            aged = await history.read_aged(conn, tenants, first_ids, limit=BATCH)
            forgotten = await history.forget(conn, aged)
        is_all = len(aged) < BATCH
        self._trails.note(tenants, aged, {one.id for one in forgotten}, is_all=is_all)
        self._logs += [one.id for one in forgotten if one.has_run]
        if forgotten:
            log.info("forgot %s tasks, as the plans of their tenants say", len(forgotten))
        await self._drop_logs()
        return not is_all or len(due) > len(tenants)

    async def _drop_logs(self) -> None:
        """Delete the logs of what was forgotten, after it: whoever finds a task finds its log.

        Those that could not be deleted are tried again, and go with their day at the latest.
        """
        if self._logs:
            await self._logbook.drop(self._logs)
            self._logs = []
