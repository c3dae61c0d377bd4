"""Fires schedules while this server leads.

It sleeps until the next one is due, or until somebody changes one. What is due is locked in
batches; in one transaction, under the term, the fire times are claimed, their tasks stored
and the schedules moved on. So a fire time has one task over any number of leaders: whoever
comes second finds the schedule moved, and the claim taken.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.config import SchedulingSettings
from duly.model.schedule import Missed
from duly.model.task import Reason
from duly.policy import firing
from duly.policy.firing import Decided
from duly.server.canceller import Canceller
from duly.server.cluster_manager import ClusterManager
from duly.server.news import News
from duly.server.occurrences import Draft, Made, Occurrences
from duly.server.rate_limiter import RateLimiter, rate_of
from duly.server.service import Service
from duly.server.waker import Waker
from duly.store import schedules, servers, tasks
from duly.store.database import Connection, Database, Taken, Unstorable
from duly.store.schedules import Account, DueSchedule
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 500
"""Schedules that fire in one transaction, at most."""
MOST_TIMES = 1000
"""Fire times after which a transaction takes on no further schedule: PostgreSQL ends one that
keeps it waiting for 2 s."""
BUSY = timedelta(milliseconds=20)
"""How long to leave schedules alone that are due and held by somebody."""


class Fired(msgspec.Struct, frozen=True):
    """What one transaction did."""

    schedules: int
    made: Made
    cancelled: dict[int, bool]
    busy: set[int]
    """Tenants that somebody else holds: their schedules were left alone."""


class Timekeeper(Service):
    """Sees to it that schedules fire in time."""

    def __init__(
        self,
        database: Database,
        settings: SchedulingSettings,
        cluster_manager: ClusterManager,
        canceller: Canceller,
        occurrences: Occurrences,
        rate_limiter: RateLimiter,
        waker: Waker,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._grace = settings.misfire_after
        self._cluster_manager = cluster_manager
        self._canceller = canceller
        self._occurrences = occurrences
        self._rate_limiter = rate_limiter
        self._waker = waker
        self._until_due: timedelta | None = None
        self._limit = BATCH

    def pause(self) -> timedelta:
        """Wait no longer than until the next schedule is due."""
        if self._until_due is None:
            return self._interval
        return min(self._interval, self._until_due)

    def hear(self, told: News) -> None:
        """Take in what another server told: a schedule may fire earlier than we know."""
        if told.due:
            self.nudge()

    async def tick(self) -> bool:
        """Fire what is due, a batch at a time, until nothing is."""
        term = self._cluster_manager.term
        if term is None:
            return False
        busy: set[int] = set()
        while True:
            async with self._database.connection() as conn:
                self._until_due = await schedules.until_due(conn)
            if self._until_due != timedelta(0):
                return False
            fired = await self._fire(term, busy)
            busy |= fired.busy
            if not fired.schedules and not fired.busy:
                # Somebody changes them just now, or submits for their tenants.
                self._until_due = BUSY
                return False

    async def _fire(self, term: Term, busy: set[int]) -> Fired:
        """Fire one batch, or a smaller one when something in it cannot be stored."""
        try:
            fired = await self._fire_batch(term, busy, self._limit)
        except Taken:
            # An id was minted twice, or a unique key taken just now: the next try sees it.
            return await self._fire_batch(term, busy, self._limit)
        except Unstorable as error:
            if self._limit > 1:
                self._limit = 1
                return await self._fire(term, busy)
            log.warning("a schedule cannot be stored as a task: %s", error)
            fired = await self._fire_batch(term, busy, 1, because=_unstorable(error))
        self._limit = min(BATCH, self._limit * 2)
        return fired

    async def _fire_batch(
        self, term: Term, busy: set[int], limit: int, because: Reason | None = None
    ) -> Fired:
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            due = await schedules.lock_due(conn, limit=limit, without=busy)
            accounts, held = await _accounts(conn, due)
            due = [one for one in due if one.template.tenant_id not in held]
            decided = list(self._decided(due, because))
            made = await self._occurrences.make(conn, list(_drafts(decided)), accounts)
            cancelled = await _cancel_others(conn, decided, made)
            await schedules.move(conn, _moved(decided, made))
        self._tell(made, cancelled)
        return Fired(len(decided), made, cancelled, held)

    def _decided(
        self, due: Iterable[DueSchedule], because: Reason | None
    ) -> Iterator[tuple[DueSchedule, Decided]]:
        """Decide about one schedule after the other, as far as one transaction may go."""
        times = 0
        for one in due:
            if times >= MOST_TIMES:
                return
            decided = self._decide(one, because)
            times += len(decided.runs) + sum(missed.times for missed in decided.missed)
            yield one, decided

    def _decide(self, due: DueSchedule, because: Reason | None) -> Decided:
        template = due.template
        decided = firing.decide(
            template.recurrence,
            due.next_run_at,
            misfire=template.misfire,
            overlap=template.overlap,
            has_live=bool(due.open_tasks),
            grace=self._grace,
            now=due.now,
        )
        if because is None:
            return decided
        missed = [*decided.missed, *(Missed(at, at, 1, because) for at in decided.runs)]
        return Decided([], missed, decided.next_run_at)

    def _tell(self, made: Made, cancelled: Mapping[int, bool]) -> None:
        """Let others know, after the commit."""
        self._occurrences.remember(made)
        if made.tasks:
            self._rate_limiter.note(made.inserted.buckets)
            self._waker.wake(made.tasks, made.inserted.stored)
        if cancelled:
            self._canceller.tell(cancelled)


async def _accounts(
    conn: Connection, due: Sequence[DueSchedule]
) -> tuple[dict[int, Account], set[int]]:
    """Return the tenants, and those that somebody else holds: nobody waits for one."""
    if not due:
        return {}, set()
    tenants = {one.template.tenant_id for one in due}
    accounts = await schedules.read_accounts(conn, tenants)
    held = tenants - accounts.keys()
    limited = {one for one, account in accounts.items() if rate_of(account.plan) is not None}
    if limited:
        held |= limited - await schedules.try_buckets(conn, limited)
    return accounts, held


def _drafts(decided: Iterable[tuple[DueSchedule, Decided]]) -> Iterator[Draft]:
    for one, decision in decided:
        yield from (Draft(one.template, at) for at in decision.runs)
        yield from (Draft(one.template, each.first_at, each) for each in decision.missed)


async def _cancel_others(
    conn: Connection, decided: Iterable[tuple[DueSchedule, Decided]], made: Made
) -> dict[int, bool]:
    """Cancel what is still live of schedules that want their newest task alone."""
    others: dict[int, list[int]] = {}
    for one, decision in decided:
        if decision.cancels_others and one.template.id in made.opened:
            others.setdefault(one.template.tenant_id, []).extend(one.open_tasks)
    if not others:
        return {}
    await schedules.lock_tasks(conn, (task for ids in others.values() for task in ids))
    found: dict[int, bool] = {}
    for tenant_id, ids in others.items():
        found |= await tasks.request_cancel(conn, tenant_id, ids)
    return found


def _moved(
    decided: Iterable[tuple[DueSchedule, Decided]], made: Made
) -> dict[int, tuple[datetime | None, list[int]]]:
    """Return when each schedule fires next, and which of its tasks have not ended."""
    moved = {}
    for one, decision in decided:
        opened: list[int] = []
        if one.template.watches:
            opened = [*one.open_tasks, *made.opened.get(one.template.id, [])]
        moved[one.template.id] = (decision.next_run_at, opened)
    return moved


def _unstorable(error: Unstorable) -> Reason:
    return Reason("not_submittable", f"The database cannot store its task: {error}")
