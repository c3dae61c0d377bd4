"""Fires schedules while this server leads.

It sleeps until the next schedule is due or a hint says that one has changed. Due schedules are
locked in batches; one transaction, fenced by the term, claims the fire times, stores their tasks
or graphs and advances the schedules. So each fire time is used once across any number of
leaders: a second one finds the schedule advanced and the fire time claimed. When very many
schedules are due at once, two such transactions run concurrently on different schedules, so
that PostgreSQL stores one batch while the next is prepared.

Decision: docs/adr/0019-fire-times.md.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from duly import clock
from duly.config import SchedulingSettings
from duly.model.schedules.schedule import MissedFireTimes, Overlap
from duly.model.task import Reason
from duly.policy import admission
from duly.policy.schedules import firing
from duly.policy.schedules.firing import MAX_RUNS_PER_DECISION, FiringDecision
from duly.server.admission.rate_limiter import RateLimiter, rate_of
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.cluster.hints import Hint
from duly.server.lifecycle.canceller import Canceller
from duly.server.recurrence import overlaps
from duly.server.recurrence.occurrence_admission import OccurrenceDraft, OpenOccurrences
from duly.server.recurrence.occurrences import FireResult, Occurrences
from duly.server.recurrence.overlaps import OpenIds
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.server.service import Service
from duly.store.database import Connection, Database, Taken, Unstorable
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.tasks import schedules
from duly.store.tasks.schedules import Account, DueSchedule, NextFire, UnreadableSchedule

log = logging.getLogger(__name__)
BATCH_SIZE = 500
"""The most schedules that fire in one transaction."""
MAX_CONCURRENT_BATCHES = 2
"""Transactions that run concurrently while batches are full."""
MAX_TASKS_PER_TRANSACTION = 1000
"""Tasks and missed fire times after which a transaction takes on no further schedule: while it
runs no other server can take over, and PostgreSQL ends one that is idle for 2 s."""
LOCKED_RETRY_DELAY = timedelta(milliseconds=20)
"""How long to wait when all due schedules are locked by other transactions."""

UNREADABLE_RETRY_SECONDS = 60.0
"""How long schedules are skipped that this server cannot read."""


class FiredBatch(msgspec.Struct, frozen=True):
    """What one transaction did."""

    schedules: int
    result: FireResult
    locked_tenants: set[int]
    """Tenants locked by other transactions, whose schedules were skipped."""
    unreadable: int = 0
    """How many schedules cannot be read by this server."""


class Timekeeper(Service):
    """Fires due schedules."""

    def __init__(
        self,
        database: Database,
        settings: SchedulingSettings,
        cluster_manager: ClusterManager,
        canceller: Canceller,
        occurrences: Occurrences,
        rate_limiter: RateLimiter,
        leader_nudge: LeaderNudge,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._grace = settings.misfire_after
        self._cluster_manager = cluster_manager
        self._canceller = canceller
        self._occurrences = occurrences
        self._rate_limiter = rate_limiter
        self._leader_nudge = leader_nudge
        self._until_due: timedelta | None = None
        self._batch_limit = BATCH_SIZE
        self._unreadable: set[int] = set()
        self._unreadable_since = 0.0

    def pause(self) -> timedelta:
        """Wait no longer than until the next schedule is due."""
        if self._until_due is None:
            return self._interval
        return min(self._interval, self._until_due)

    def on_hint(self, hint: Hint) -> None:
        """Handle a hint: a schedule may be due earlier than we know."""
        if hint.due:
            self.nudge()

    async def tick(self) -> bool:
        """Fire due schedules, a batch at a time, until none is due."""
        term = self._cluster_manager.term
        if term is None:
            return False
        locked_tenants: set[int] = set()
        if clock.monotonic() - self._unreadable_since >= UNREADABLE_RETRY_SECONDS:
            self._unreadable.clear()
        while True:
            async with self._database.connection() as conn:
                self._until_due = await schedules.until_due(conn, aside=self._unreadable)
            if self._until_due != timedelta(0):
                return False
            fired = await self._fire(term, locked_tenants)
            locked_tenants |= fired.locked_tenants
            if fired.schedules == BATCH_SIZE:
                await self._fire_many(term, locked_tenants)
            elif not fired.schedules and not fired.locked_tenants and not fired.unreadable:
                # The due schedules are being changed, or their tenants are submitting.
                self._until_due = LOCKED_RETRY_DELAY
                return False

    async def _fire_many(self, term: Term, locked_tenants: Iterable[int]) -> None:
        """Fire batches concurrently for as long as they are full."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(MAX_CONCURRENT_BATCHES):
                    group.create_task(self._fire_full(term, locked_tenants))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _fire_full(self, term: Term, locked_tenants: Iterable[int]) -> None:
        """Fire batches until one is not full; one that cannot be stored is left to `_fire`."""
        with suppress(Unstorable):
            while (
                await self._fire_batch(term, locked_tenants, BATCH_SIZE)
            ).schedules == BATCH_SIZE:
                pass

    async def _fire(self, term: Term, locked_tenants: set[int]) -> FiredBatch:
        """Fire one batch; if it cannot be stored, fire its schedules one by one."""
        try:
            fired = await self._fire_batch(term, locked_tenants, self._batch_limit)
        except Taken:
            # An id was minted twice, or a unique key was taken just now: the next try sees it.
            return await self._fire_batch(term, locked_tenants, self._batch_limit)
        except Unstorable as error:
            if self._batch_limit > 1:
                self._batch_limit = 1
                return await self._fire(term, locked_tenants)
            log.warning("cannot store what a schedule submits: %s", error)
            reason = _unstorable_reason(error)
            fired = await self._fire_batch(term, locked_tenants, 1, refuse_with=reason)
        self._batch_limit = min(BATCH_SIZE, self._batch_limit * 2)
        return fired

    async def _fire_batch(
        self,
        term: Term,
        locked_tenants: Iterable[int],
        limit: int,
        refuse_with: Reason | None = None,
    ) -> FiredBatch:
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            due, unreadable = await schedules.lock_due(
                conn, limit=limit, without=locked_tenants, aside=self._unreadable
            )
            self._skip_unreadable(unreadable)
            accounts, newly_locked = await _lock_accounts(conn, due)
            due = [schedule for schedule in due if schedule.template.tenant_id not in newly_locked]
            decisions = list(self._decide_all(due, refuse_with))
            opened = await overlaps.read_open(conn, dict(_overlapping(decisions)))
            result = await self._occurrences.fire(conn, list(_drafts(decisions)), accounts, opened)
            await schedules.advance(conn, _schedule_updates(decisions, result))
            replaced = _replaced_tasks(decisions, result, opened)
            cancelled = await overlaps.enforce(conn, result.occurrences, replaced)
        self._notify(result, cancelled)
        return FiredBatch(len(decisions), result, newly_locked, len(unreadable))

    def _skip_unreadable(self, unreadable: Iterable[UnreadableSchedule]) -> None:
        """Skip schedules that this server cannot read, such as one in a time zone it lacks.

        Otherwise they would block all others. A server that can read them fires them late, and
        applies their misfire policy.
        """
        for schedule in unreadable:
            log.warning(
                "skipping schedule %d, which this server cannot read: %s", schedule.id, schedule.why
            )
            self._unreadable.add(schedule.id)
            self._unreadable_since = clock.monotonic()

    def _decide_all(
        self, due: Iterable[DueSchedule], refuse_with: Reason | None
    ) -> Iterator[tuple[DueSchedule, FiringDecision]]:
        """Decide about due schedules in turn, up to the limit of one transaction."""
        tasks = 0
        for schedule in due:
            if tasks >= MAX_TASKS_PER_TRANSACTION:
                return
            decision = self._decide(schedule, refuse_with)
            tasks += len(decision.runs) * schedule.template.size
            tasks += sum(missed.times for missed in decision.missed)
            yield schedule, decision

    def _decide(self, due: DueSchedule, refuse_with: Reason | None) -> FiringDecision:
        template = due.template
        decision = firing.decide(
            template.recurrence,
            due.next_run_at,
            misfire=template.misfire,
            overlap=template.overlap,
            has_live=bool(due.open_tasks or due.open_graphs),
            grace=self._grace,
            now=due.now,
            max_runs=min(MAX_RUNS_PER_DECISION, max(1, MAX_TASKS_PER_TRANSACTION // template.size)),
        )
        if refuse_with is None:
            return decision
        missed = [
            *decision.missed,
            *(MissedFireTimes(at, at, 1, refuse_with) for at in decision.runs),
        ]
        return FiringDecision([], missed, decision.next_run_at)

    def _notify(self, result: FireResult, cancelled: Mapping[int, int | None]) -> None:
        """Update caches and wake the scheduler, after the commit."""
        self._occurrences.cache_shapes(result)
        if result.tasks:
            self._rate_limiter.observe(result.inserted.buckets)
            self._leader_nudge.announce_stored(result.tasks, result.inserted.stored)
        if cancelled:
            self._canceller.notify(cancelled)


async def _lock_accounts(
    conn: Connection, due: Sequence[DueSchedule]
) -> tuple[dict[int, Account], set[int]]:
    """Lock the tenants of due schedules; return them, and those that others have locked.

    It never waits for a lock: schedules of locked tenants are skipped for now.
    """
    if not due:
        return {}, set()
    tenants = {schedule.template.tenant_id for schedule in due}
    accounts = await schedules.read_accounts(conn, tenants)
    locked = tenants - accounts.keys()
    rates = {
        tenant_id: rate
        for tenant_id, account in accounts.items()
        if (rate := rate_of(account.plan)) is not None
    }
    if rates:
        buckets = await schedules.lock_free_buckets(conn, rates)
        locked |= rates.keys() - buckets.keys()
        for tenant_id, row in buckets.items():
            tokens = admission.refill(row.bucket, row.now).whole_tokens
            accounts[tenant_id] = msgspec.structs.replace(accounts[tenant_id], tokens=tokens)
    return accounts, locked


def _overlapping(
    decisions: Iterable[tuple[DueSchedule, FiringDecision]],
) -> Iterator[tuple[int, OpenIds]]:
    """Yield the open tasks and graphs of schedules that wait for them or cancel them now."""
    for schedule, decision in decisions:
        template = schedule.template
        if decision.cancels_others or (decision.runs and template.overlap is Overlap.QUEUE):
            yield template.id, OpenIds(schedule.open_tasks, schedule.open_graphs)


def _drafts(decisions: Iterable[tuple[DueSchedule, FiringDecision]]) -> Iterator[OccurrenceDraft]:
    for schedule, decision in decisions:
        yield from (OccurrenceDraft(schedule.template, at) for at in decision.runs)
        yield from (
            OccurrenceDraft(schedule.template, missed.first_at, missed)
            for missed in decision.missed
        )


def _replaced_tasks(
    decisions: Iterable[tuple[DueSchedule, FiringDecision]],
    result: FireResult,
    opened: Mapping[int, OpenOccurrences],
) -> dict[int, list[int]]:
    """Return by tenant the open tasks that a new occurrence replaces (overlap: cancel_other)."""
    new = result.by_schedule()
    replaced: dict[int, list[int]] = {}
    for schedule, decision in decisions:
        template = schedule.template
        if decision.cancels_others and template.id in new:
            replaced.setdefault(template.tenant_id, []).extend(opened[template.id].tasks)
    return replaced


def _schedule_updates(
    decisions: Iterable[tuple[DueSchedule, FiringDecision]], result: FireResult
) -> dict[int, NextFire]:
    """Return the next fire time and the open tasks and graphs of each schedule."""
    updates = {}
    fired = result.by_schedule()
    for schedule, decision in decisions:
        tasks: list[int] = []
        graphs: list[int] = []
        if schedule.template.checks_overlap:
            new = fired.get(schedule.template.id, [])
            tasks = [
                *schedule.open_tasks,
                *(occurrence.id for occurrence in new if occurrence.graph is None),
            ]
            graphs = [
                *schedule.open_graphs,
                *(occurrence.id for occurrence in new if occurrence.graph is not None),
            ]
        updates[schedule.template.id] = NextFire(decision.next_run_at, tasks, graphs)
    return updates


def _unstorable_reason(error: Unstorable) -> Reason:
    return Reason("not_submittable", f"The database cannot store what it submits: {error}")
