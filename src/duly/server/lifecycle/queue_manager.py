"""Moves tasks to their next status when they become due and when their attempts end.

While this server leads, each tick releases due tasks to their queues, unblocks tasks whose
upstreams have ended, expires silent nodes and ends the attempts that ran on them. On any
server it finishes the attempts that agents report, fenced by (task, attempt, token).

Decision: docs/adr/0006-finish-under-locks.md.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from random import Random

from duly import telemetry, wire
from duly.config import Settings
from duly.model.task import NO_LOST_STARTS, LostStarts, Outcome, Reason, Status, Usage
from duly.policy.fairness.turns import SubqueueKey
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.cluster.wakeups import Wakeups
from duly.server.delivery.report_sanitizer import is_valid_ref, sanitize
from duly.server.duty_cycle import DutyCycle
from duly.server.lifecycle.attempt_outcomes import AttemptOutcomes
from duly.server.lifecycle.dependency_resolver import NOTHING_SETTLED, DependencyResolver
from duly.server.lifecycle.expiry_grace import ExpiryGrace
from duly.server.lifecycle.retry_promotion import RetryPromotion
from duly.server.lifecycle.throttling import Throttling
from duly.server.scheduling.resource_manager import ResourceManager
from duly.server.scheduling.subqueues.prioritizer import Prioritizer
from duly.server.service import Service
from duly.store.attempts import leases, stopping_attempts
from duly.store.attempts.leases import EndedAttempt, LockedAttempt, Vitals
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database, confirm, now
from duly.store.fleet import servers
from duly.store.fleet.servers import Term
from duly.store.tasks.edges import ResolvedEdges

log = logging.getLogger(__name__)
BATCH_SIZE = 1000
LOCKED_RETRY_DELAY = timedelta(milliseconds=50)
"""How long to wait when the due tasks are locked by another transaction."""
RECENT_END_WINDOW = timedelta(minutes=10)
"""Every tick looks for attempts left behind by incarnations that ended this recently."""
MAX_SWEEP_INTERVAL = timedelta(seconds=60)
"""The longest that an attempt of an incarnation that ended earlier may go unnoticed."""
LOST_START_WINDOW = timedelta(minutes=1)
"""A node last heard from within this time of the lease was lost while it started the task."""


class QueueManager(Service):
    """Releases due tasks, recovers lost ones, and finishes reported attempts."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        resource_manager: ResourceManager,
        wakeups: Wakeups,
        server_bus: ServerBus,
        dice: Random,
    ) -> None:
        super().__init__(settings.scheduling.interval)
        self._database = database
        self._attempt_outcomes = AttemptOutcomes(settings, dice)
        self._retry_promotion = RetryPromotion(is_enabled=settings.scheduling.promote_retries)
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._resource_manager = resource_manager
        self._wakeups = wakeups
        self._server_bus = server_bus
        self._until_due: timedelta | None = None
        self._dependency_resolver = DependencyResolver()
        self._expiry_grace = ExpiryGrace(settings.leases.ttl)
        self.throttling = Throttling(database)
        self._sweep = DutyCycle(timedelta(0), MAX_SWEEP_INTERVAL)

    def pause(self) -> timedelta:
        """Wait until the next task is due or the dependency resolver is ready, if sooner."""
        waits = (self._interval, self._until_due, self._dependency_resolver.wait)
        return min(wait for wait in waits if wait is not None)

    async def tick(self) -> bool:
        """Release due tasks, then expire silent nodes and retry or give up what ran on them."""
        term = self._cluster_manager.term
        if term is None:
            self._dependency_resolver.take_pending()
            return False
        settled = await self._resolve_dependencies(term)
        due = await self._release_due(term)
        if due:
            self._wake_scheduler(due)
        lost = await self._recover_lost(term)
        self.notify_ended(lost)
        return settled.has_more or len(due) == BATCH_SIZE or len(lost) == BATCH_SIZE

    async def _resolve_dependencies(self, term: Term) -> ResolvedEdges:
        """Unblock tasks whose upstreams have ended, and read when the next task is due.

        Ends that were announced are settled first: a chain of tasks waits for nothing else.
        """
        settled, has_pending = NOTHING_SETTLED, self._dependency_resolver.take_pending()
        async with self._database.connection() as conn:
            if has_pending:
                settled = await self._settle_edges(conn, term)
            self._until_due, has_ended = await leases.next_due(conn)
            if has_ended and self._dependency_resolver.is_due and settled is NOTHING_SETTLED:
                settled = await self._settle_edges(conn, term)
                if settled.scheduled:
                    self._until_due, _ = await leases.next_due(conn)
        return settled

    async def _settle_edges(self, conn: Connection, term: Term) -> ResolvedEdges:
        settled = await self._dependency_resolver.settle(conn, term)
        if settled.waiting:
            self._wake_scheduler(settled.waiting)
        if settled.cancelled:
            self._notify(frozenset(settled.cancelled), [], is_due=False)
        return settled

    async def _release_due(self, term: Term) -> list[tuple[SubqueueKey, datetime]]:
        """Move a batch of due tasks from scheduled to waiting."""
        if self._until_due != timedelta(0):
            return []
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            due = await leases.release_due(conn, limit=BATCH_SIZE)
            self._until_due = (await leases.next_due(conn))[0] if due else LOCKED_RETRY_DELAY
        return due

    async def _recover_lost(self, term: Term) -> list[EndedAttempt]:
        """Expire silent nodes, and end the attempts that ran on lost ones."""
        async with self._database.connection() as conn:
            vitals = await self._read_vitals(conn)
            may_expire = self._expiry_grace.is_over(
                term, self._cluster_manager.led_since, vitals.started_at, vitals.now
            )
            if not (vitals.has_orphans or (vitals.has_silent and may_expire)):
                return []
            async with conn.transaction():
                await servers.hold(conn, term)
                if may_expire:
                    await _expire_silent_nodes(conn, vitals.now)
                await stopping_attempts.remove_orphans(conn)
                lost = await self.end_orphans(
                    conn, await leases.lock_orphans(conn, limit=BATCH_SIZE)
                )
        if len(lost) == BATCH_SIZE:
            self._sweep.make_due()
        return lost

    async def _read_vitals(self, conn: Connection) -> Vitals:
        """Check all running attempts, too, as often as the duty cycle of that scan allows."""
        if not self._sweep.is_due:
            return await leases.read_vitals(conn, lately=RECENT_END_WINDOW, whole=False)
        with self._sweep.step():
            return await leases.read_vitals(conn, lately=RECENT_END_WINDOW, whole=True)

    async def end_orphans(
        self, conn: Connection, orphans: Sequence[LockedAttempt]
    ) -> list[EndedAttempt]:
        """End attempts whose incarnation has ended. The caller has locked their rows."""
        if not orphans:
            return []
        at = await now(conn)
        lost = [held.id for held in orphans if not (held.has_left or held.was_removed)]
        starts = await leases.read_lost_starts(conn, lost, within=LOST_START_WINDOW)
        ended = [
            self._end_orphan(held, at, starts.get(held.id, NO_LOST_STARTS)) for held in orphans
        ]
        await leases.end_attempts(conn, ended)
        return ended

    def _end_orphan(self, held: LockedAttempt, at: datetime, starts: LostStarts) -> EndedAttempt:
        outcome, reason = (
            Outcome.LOST,
            Reason("node_lost", "Its node, or the agent on it, stopped responding."),
        )
        if held.was_removed:
            reason = Reason("node_removed", "Its node was removed while it was running.")
        elif held.has_left:
            outcome = Outcome.EXPIRED
            reason = Reason("node_left", "Its node was shut down before starting it.")
        ref = wire.AttemptRef(held.id, held.attempt, held.token)
        ran, usage = _last_measured(held, at)
        report = wire.AttemptReport(ref=ref, outcome=outcome, reason=reason, ran=ran, usage=usage)
        return self._attempt_outcomes.decide(held, report, at, starts)

    def on_hint(self, hint: Hint) -> None:
        """Handle a hint: tasks are due, or tasks have ended."""
        if hint.due:
            self.nudge()
        if hint.tasks is None:
            self._wakeups.wake_all()
        else:
            self._wakeups.wake(hint.tasks)

    def recheck(self) -> None:
        """Read waiting and due tasks again after a change that sent no hints, such as a repair."""
        self._prioritizer.request_recount()
        self._resource_manager.nudge()
        self.nudge()

    async def report(self, node_id: int, reports: Sequence[wire.AttemptReport]) -> list[bool]:
        """Finish attempts; return for each report whether it counts. Stale ones change nothing."""
        possible = {report.ref: sanitize(report) for report in reports if is_valid_ref(report.ref)}
        await self.throttling.record_ended(node_id, possible.values())
        accepted = await self._finish_succeeded(node_id, possible.values())
        rest = [report for ref, report in possible.items() if ref not in accepted]
        if rest:
            accepted |= await self._finish_locked(node_id, rest)
        return [report.ref in accepted for report in reports]

    async def _finish_succeeded(
        self, node_id: int, reports: Iterable[wire.AttemptReport]
    ) -> set[wire.AttemptRef]:
        """Finish succeeded attempts in one statement, except those of tasks being cancelled.

        A success needs no decision, so the rows need not be read first.
        """
        succeeded = {
            report.ref.task: report for report in reports if report.outcome is Outcome.SUCCEEDED
        }
        if not succeeded:
            return set()
        async with self._database.connection(ConnectionClass.NODE) as conn:
            done = await leases.finish_attempts(
                conn,
                node_id,
                [self._attempt_outcomes.succeeded(report) for report in succeeded.values()],
            )
        if done:
            telemetry.ATTEMPTS_ENDED.labels(Outcome.SUCCEEDED.value).inc(len(done))
            self._notify(done.keys(), [], is_due=any(done.values()))
        return {succeeded[task].ref for task in done}

    async def _finish_locked(
        self, node_id: int, reports: Sequence[wire.AttemptReport]
    ) -> set[wire.AttemptRef]:
        """Lock the attempts and decide about each; return the reports accepted now or before."""
        async with self._database.transaction(ConnectionClass.NODE) as conn:
            held, at = await leases.lock_attempts(conn, node_id, _attempt_keys(reports))
            current = {
                report.ref: report
                for report in reports
                if _matches(held.get(report.ref.task), report)
            }
            ended: list[EndedAttempt] = []
            new_shapes: Mapping[str, int] = {}
            if at is not None:
                ended = [
                    self._attempt_outcomes.decide(held[ref.task], report, at)
                    for ref, report in current.items()
                ]
                ended, new_shapes = await self._retry_promotion.apply(conn, ended)
                await leases.end_attempts(conn, ended)
            rest = [report for report in reports if report.ref not in current]
            before, stopped = set(), set()
            if rest:
                before = await leases.read_reported(conn, node_id, _attempt_keys(rest))
                stopped = await stopping_attempts.remove(conn, node_id, _attempt_keys(rest))
                # The agent drops these whatever the answer, so the answer must be durable.
                await confirm(conn)
        self._retry_promotion.put(new_shapes)
        telemetry.REPORTS_STALE.inc(len(rest) - len(before) - len(stopped))
        self.notify_ended(ended)
        if stopped:
            self._notify(frozenset(), [], is_due=False)
        repeated = {
            report.ref for report in rest if (report.ref.task, report.ref.attempt) in before
        }
        return current.keys() | repeated

    def notify_ended(self, ended: Sequence[EndedAttempt]) -> None:
        """Wake clients that wait for these tasks, and the scheduler. Call it after the commit."""
        if not ended:
            return
        for outcome, times in Counter(attempt.outcome for attempt in ended).items():
            telemetry.ATTEMPTS_ENDED.labels(outcome.value).inc(times)
        ids = frozenset(attempt.held.id for attempt in ended)
        waiting = [
            ((attempt.held.tenant_id, attempt.shape_id), attempt.start_by)
            for attempt in ended
            if attempt.status is Status.WAITING
        ]
        # Tasks that have ended may have downstreams; the leader finds out.
        is_due = any(attempt.status is not Status.WAITING for attempt in ended)
        self._notify(ids, waiting, is_due=is_due)

    def notify_marked(self, task: int) -> None:
        """Wake clients that wait for a task that was marked, and the leader, after the commit."""
        self._notify({task}, [], is_due=True)

    def _notify(
        self, ended: Set[int], waiting: Sequence[tuple[SubqueueKey, datetime]], *, is_due: bool
    ) -> None:
        self._wakeups.wake(ended)
        self._wake_scheduler(waiting)
        if is_due and self._dependency_resolver.announce_end():
            self.nudge()
        pairs = frozenset(pair for pair, _ in waiting)
        self._server_bus.publish(
            Hint(work=True, subqueues=pairs, due=is_due, tasks=frozenset(ended))
        )

    def _wake_scheduler(self, waiting: Sequence[tuple[SubqueueKey, datetime]]) -> None:
        self._prioritizer.mark_ready(waiting)
        self._resource_manager.nudge()


async def _expire_silent_nodes(conn: Connection, at: datetime) -> None:
    for incarnation, node in await leases.expire_incarnations(conn, at):
        log.warning("node %s is lost (incarnation %s)", node, incarnation)


def _last_measured(held: LockedAttempt, at: datetime) -> tuple[float | None, Usage | None]:
    """Return how long a lost attempt ran and what it used, as last measured by its node."""
    if held.running_since is None:
        return None, None
    ran = max(0.0, (at - held.running_since).total_seconds())
    if held.cpu_seconds is None:
        return ran, None
    return ran, Usage(held.cpu_seconds, held.peak_memory_mb, ran)


def _attempt_keys(reports: Sequence[wire.AttemptReport]) -> list[tuple[int, int, int]]:
    return [(report.ref.task, report.ref.attempt, report.ref.token) for report in reports]


def _matches(held: LockedAttempt | None, report: wire.AttemptReport) -> bool:
    return held is not None and (held.attempt, held.token) == (
        report.ref.attempt,
        report.ref.token,
    )
