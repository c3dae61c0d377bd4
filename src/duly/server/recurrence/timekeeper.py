"""Fires schedules while this server leads.

It sleeps until the next one is due, or until somebody changes one. What is due is locked in
batches; in one transaction, under the term, the fire times are claimed, their tasks or graphs
stored and the schedules moved on. So a fire time has one of them over any number of leaders:
whoever comes second finds the schedule moved, and the claim taken. When very many are due at
one moment two such transactions are under way at once, each with schedules of its own, so that
PostgreSQL stores one batch while the next is made.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from duly import clock
from duly.config import SchedulingSettings
from duly.model.schedule import Missed, Overlap
from duly.model.task import Reason
from duly.policy import admission, firing
from duly.policy.firing import MOST_RUNS, Decided
from duly.server import overlaps
from duly.server.canceller import Canceller
from duly.server.cluster_manager import ClusterManager
from duly.server.drafts import Draft, Open
from duly.server.news import News
from duly.server.occurrences import Made, Occurrences
from duly.server.overlaps import Live
from duly.server.rate_limiter import RateLimiter, rate_of
from duly.server.service import Service
from duly.server.waker import Waker
from duly.store import schedules, servers
from duly.store.database import Connection, Database, Taken, Unstorable
from duly.store.schedules import Account, DueSchedule, Moved, Unreadable
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 500
"""Schedules that fire in one transaction, at most."""
AT_ONCE = 2
"""Batches that are under way at one time, when there are full ones."""
MOST_TASKS = 1000
"""Tasks and missed fire times after which a transaction takes on no further schedule: while it
lasts nobody else can take over, and PostgreSQL ends one that keeps it waiting for 2 s."""
BUSY = timedelta(milliseconds=20)
"""How long to leave schedules alone that are due and held by somebody."""

AGAIN = 60.0
"""Seconds until schedules are tried again that this server could not read."""


class Fired(msgspec.Struct, frozen=True):
    """What one transaction did."""

    schedules: int
    made: Made
    cancelled: dict[int, int | None]
    busy: set[int]
    """Tenants that somebody else holds: their schedules were left alone."""
    aside: int = 0
    """How many schedules were found that cannot be read here."""


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
        self._aside: set[int] = set()
        self._aside_at = 0.0

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
        if clock.monotonic() - self._aside_at >= AGAIN:
            self._aside.clear()
        while True:
            async with self._database.connection() as conn:
                self._until_due = await schedules.until_due(conn, aside=self._aside)
            if self._until_due != timedelta(0):
                return False
            fired = await self._fire(term, busy)
            busy |= fired.busy
            if fired.schedules == BATCH:
                await self._fire_many(term, busy)
            elif not fired.schedules and not fired.busy and not fired.aside:
                # Somebody changes them just now, or submits for their tenants.
                self._until_due = BUSY
                return False

    async def _fire_many(self, term: Term, busy: Iterable[int]) -> None:
        """Fire full batches for as long as there are some, a few at once."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._fire_full(term, busy))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _fire_full(self, term: Term, busy: Iterable[int]) -> None:
        """Fire one full batch after the other; whatever needs care is left for later."""
        with suppress(Unstorable):
            while (await self._fire_batch(term, busy, BATCH)).schedules == BATCH:
                pass

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
            log.warning("what a schedule submits cannot be stored: %s", error)
            fired = await self._fire_batch(term, busy, 1, because=_unstorable(error))
        self._limit = min(BATCH, self._limit * 2)
        return fired

    async def _fire_batch(
        self, term: Term, busy: Iterable[int], limit: int, because: Reason | None = None
    ) -> Fired:
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            due, unreadable = await schedules.lock_due(
                conn, limit=limit, without=busy, aside=self._aside
            )
            self._set_aside(unreadable)
            accounts, held = await _accounts(conn, due)
            due = [one for one in due if one.template.tenant_id not in held]
            decided = list(self._decided(due, because))
            opened = await overlaps.read_open(conn, dict(_awaited(decided)))
            made = await self._occurrences.make(conn, list(_drafts(decided)), accounts, opened)
            await schedules.move(conn, _moved(decided, made))
            others = _others(decided, made, opened)
            cancelled = await overlaps.settle(conn, made.occurrences, others)
        self._tell(made, cancelled)
        return Fired(len(decided), made, cancelled, held, len(unreadable))

    def _set_aside(self, unreadable: Iterable[Unreadable]) -> None:
        """Leave alone what cannot be read here, such as a zone that only others know yet.

        Otherwise nobody's schedules would fire. Its fire times are late when one comes who can
        read it, and that server treats them as such.
        """
        for one in unreadable:
            log.warning("schedule %d cannot be read here and is left alone: %s", one.id, one.why)
            self._aside.add(one.id)
            self._aside_at = clock.monotonic()

    def _decided(
        self, due: Iterable[DueSchedule], because: Reason | None
    ) -> Iterator[tuple[DueSchedule, Decided]]:
        """Decide about one schedule after the other, as far as one transaction may go."""
        tasks = 0
        for one in due:
            if tasks >= MOST_TASKS:
                return
            decided = self._decide(one, because)
            tasks += len(decided.runs) * one.template.size
            tasks += sum(missed.times for missed in decided.missed)
            yield one, decided

    def _decide(self, due: DueSchedule, because: Reason | None) -> Decided:
        template = due.template
        decided = firing.decide(
            template.recurrence,
            due.next_run_at,
            misfire=template.misfire,
            overlap=template.overlap,
            has_live=bool(due.open_tasks or due.open_graphs),
            grace=self._grace,
            now=due.now,
            most_runs=min(MOST_RUNS, max(1, MOST_TASKS // template.size)),
        )
        if because is None:
            return decided
        missed = [*decided.missed, *(Missed(at, at, 1, because) for at in decided.runs)]
        return Decided([], missed, decided.next_run_at)

    def _tell(self, made: Made, cancelled: Mapping[int, int | None]) -> None:
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
    rates = {
        one: rate
        for one, account in accounts.items()
        if (rate := rate_of(account.plan)) is not None
    }
    if rates:
        buckets = await schedules.try_buckets(conn, rates)
        held |= rates.keys() - buckets.keys()
        for tenant_id, found in buckets.items():
            tokens = admission.fill(found.bucket, found.now).whole
            accounts[tenant_id] = msgspec.structs.replace(accounts[tenant_id], tokens=tokens)
    return accounts, held


def _awaited(decided: Iterable[tuple[DueSchedule, Decided]]) -> Iterator[tuple[int, Live]]:
    """Yield what has not ended of the schedules that see to it now: wait for it, or cancel it."""
    for one, decision in decided:
        if decision.cancels_others or (decision.runs and one.template.overlap is Overlap.QUEUE):
            yield one.template.id, Live(one.open_tasks, one.open_graphs)


def _drafts(decided: Iterable[tuple[DueSchedule, Decided]]) -> Iterator[Draft]:
    for one, decision in decided:
        yield from (Draft(one.template, at) for at in decision.runs)
        yield from (Draft(one.template, each.first_at, each) for each in decision.missed)


def _others(
    decided: Iterable[tuple[DueSchedule, Decided]], made: Made, opened: Mapping[int, Open]
) -> dict[int, list[int]]:
    """Return by tenant what is still live of schedules that want their newest occurrence alone."""
    fired = made.opened()
    others: dict[int, list[int]] = {}
    for one, decision in decided:
        if decision.cancels_others and one.template.id in fired:
            ids = opened[one.template.id].tasks
            others.setdefault(one.template.tenant_id, []).extend(ids)
    return others


def _moved(decided: Iterable[tuple[DueSchedule, Decided]], made: Made) -> dict[int, Moved]:
    """Return when each schedule fires next, and what of it has not ended."""
    moved = {}
    fired = made.opened()
    for one, decision in decided:
        tasks: list[int] = []
        graphs: list[int] = []
        if one.template.watches:
            new = fired.get(one.template.id, [])
            tasks = [*one.open_tasks, *(each.id for each in new if each.graph is None)]
            graphs = [*one.open_graphs, *(each.id for each in new if each.graph is not None)]
        moved[one.template.id] = Moved(decision.next_run_at, tasks, graphs)
    return moved


def _unstorable(error: Unstorable) -> Reason:
    return Reason("not_submittable", f"The database cannot store what it submits: {error}")
