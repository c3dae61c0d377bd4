"""Moves tasks on when their time comes and when their attempts end.

While this server leads: lets due tasks wait for their turn, and those that waited for
others; expires silent nodes, and takes back what ran on them. On any server: finishes
what agents report, fenced by (task, attempt, token), and cancels what clients cancel.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from random import Random

import msgspec

from duly import clock, telemetry, wire
from duly.config import Settings
from duly.model.task import Outcome, Reason, Status
from duly.model.tenant import Credential
from duly.policy import retry
from duly.policy.retry import Cancel, DeadLetter, Finish, Retry, RetryPolicy
from duly.server.bell import Bell
from duly.server.cluster_manager import ClusterManager
from duly.server.herald import Herald
from duly.server.lines import Pair
from duly.server.news import NONE, News
from duly.server.pace import Pace
from duly.server.polls import Polls
from duly.server.prioritizer import Prioritizer
from duly.server.reports import is_possible, storable
from duly.server.resource_manager import ResourceManager
from duly.server.service import Service
from duly.server.settler import NOTHING, Settler
from duly.store import leases, servers, tasks
from duly.store.database import Connection, Database, confirm, now
from duly.store.edges import Settled
from duly.store.lanes import Lane
from duly.store.leases import Ended, Held, Succeeded, Vitals
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 1000
BUSY = timedelta(milliseconds=50)
"""How long to leave tasks alone that are due and being changed by somebody."""
LONGEST_SWEEP = timedelta(seconds=3)
"""How long an attempt on an incarnation that has ended may be overlooked, at most."""
CLOCK_STEP = timedelta(seconds=1)
"""A jump of PostgreSQL's clock against ours that is not mere jitter."""


class QueueManager(Service):
    """Releases due tasks, takes back lost ones, and finishes what is reported."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        resource_manager: ResourceManager,
        polls: Polls,
        bell: Bell,
        herald: Herald,
        dice: Random,
    ) -> None:
        super().__init__(settings.scheduling.interval)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._resource_manager = resource_manager
        self._polls = polls
        self._bell = bell
        self._herald = herald
        self._dice = dice
        self._until_due: timedelta | None = None
        self._settler = Settler()
        self._patience = Patience(settings.leases.ttl)
        self._sweep = Pace(timedelta(0), LONGEST_SWEEP)

    def pause(self) -> timedelta:
        """Wait no longer than until the next task is due, or the next ends are to be settled."""
        waits = (self._interval, self._until_due, self._settler.rest)
        return min(wait for wait in waits if wait is not None)

    async def tick(self) -> bool:
        """Release what is due; expire silent nodes and decide about what ran on them."""
        term = self._cluster_manager.term
        if term is None:
            self._settler.take()
            return False
        settled = await self._look(term)
        due = await self._release(term)
        if due:
            self._wake(due)
        lost = await self._take_back_lost(term)
        self.wake_ended(lost)
        return settled.has_more or len(due) == BATCH or len(lost) == BATCH

    async def _look(self, term: Term) -> Settled:
        """Let those go on whose upstreams have ended; see when the next task is due.

        What was told of an end is settled first: a chain waits for nothing else.
        """
        settled, is_told = NOTHING, self._settler.take()
        async with self._database.connection() as conn:
            if is_told:
                settled = await self._settle_edges(conn, term)
            self._until_due, has_ended = await leases.next_due(conn)
            if has_ended and self._settler.is_due and settled is NOTHING:
                settled = await self._settle_edges(conn, term)
                if settled.scheduled:
                    self._until_due, _ = await leases.next_due(conn)
        return settled

    async def _settle_edges(self, conn: Connection, term: Term) -> Settled:
        settled = await self._settler.settle(conn, term)
        if settled.waiting:
            self._wake(settled.waiting)
        if settled.cancelled:
            self._tell(frozenset(settled.cancelled), [], is_due=False)
        return settled

    async def _release(self, term: Term) -> list[tuple[Pair, datetime]]:
        """Let the tasks wait for their turn whose time has come."""
        if self._until_due != timedelta(0):
            return []
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            due = await leases.release_due(conn, limit=BATCH)
            self._until_due = (await leases.next_due(conn))[0] if due else BUSY
        return due

    async def _take_back_lost(self, term: Term) -> list[Ended]:
        """Expire silent nodes, and end what ran on those that are gone."""
        async with self._database.connection() as conn:
            vitals = await self._read_vitals(conn)
            may_expire = self._patience.is_over(
                term, self._cluster_manager.led_since, vitals.started_at, vitals.now
            )
            if not (vitals.has_orphans or (vitals.has_silent and may_expire)):
                return []
            async with conn.transaction():
                await servers.hold(conn, term)
                if may_expire:
                    await _expire(conn, vitals.now)
                lost = await self.take_back(conn, await leases.lock_orphans(conn, limit=BATCH))
        if len(lost) == BATCH:
            self._sweep.hurry()
        return lost

    async def _read_vitals(self, conn: Connection) -> Vitals:
        """Look for orphans, too, unless the look itself takes long: it passes all that runs."""
        if not self._sweep.is_due:
            return await leases.read_vitals(conn, orphans=False)
        with self._sweep.step():
            return await leases.read_vitals(conn, orphans=True)

    async def take_back(self, conn: Connection, orphans: Sequence[Held]) -> list[Ended]:
        """End attempts whose agent has ended; their rows are locked."""
        if not orphans:
            return []
        at = await now(conn)
        ended = [self._lost(held, at) for held in orphans]
        await leases.end_attempts(conn, ended)
        return ended

    def _lost(self, held: Held, at: datetime) -> Ended:
        outcome, reason = Outcome.LOST, Reason("node_lost", "Its node stopped answering.")
        if held.has_left:
            outcome = Outcome.EXPIRED
            reason = Reason("node_left", "Its node left before it began it.")
        ref = wire.AttemptRef(held.id, held.attempt, held.token)
        return self._settle(held, wire.AttemptReport(ref=ref, outcome=outcome, reason=reason), at)

    def hear(self, told: News) -> None:
        """Take in what another server told: times that come, tasks that somebody here waits for."""
        if told.due:
            self.nudge()
        if told.tasks is None:
            self._bell.ring_all()
        else:
            self._bell.ring(told.tasks)

    async def report(self, node_id: int, reports: Sequence[wire.AttemptReport]) -> list[bool]:
        """Finish attempts; return for each whether it counts. What is stale changes nothing."""
        possible = {one.ref: storable(one) for one in reports if is_possible(one.ref)}
        accepted = await self._finish(node_id, possible.values())
        rest = [one for ref, one in possible.items() if ref not in accepted]
        if rest:
            accepted |= await self._decide(node_id, rest)
        return [one.ref in accepted for one in reports]

    async def _finish(
        self, node_id: int, reports: Iterable[wire.AttemptReport]
    ) -> set[wire.AttemptRef]:
        """Finish what succeeded and is not to be cancelled: of that, nothing depends on the row."""
        succeeded = {one.ref.task: one for one in reports if one.outcome is Outcome.SUCCEEDED}
        if not succeeded:
            return set()
        async with self._database.connection(Lane.NODE) as conn:
            done = await leases.finish_attempts(
                conn, node_id, [self._succeeded(one) for one in succeeded.values()]
            )
        if done:
            telemetry.ATTEMPTS_ENDED.labels(Outcome.SUCCEEDED.value).inc(len(done))
            self._tell(done.keys(), [], is_due=any(done.values()))
        return {succeeded[task].ref for task in done}

    def _succeeded(self, report: wire.AttemptReport) -> Succeeded:
        ref, (result, reason) = report.ref, self._result(report)
        return Succeeded(
            ref.task,
            ref.attempt,
            ref.token,
            report.exit_code,
            report.ran,
            report.ended_ago,
            report.usage,
            report.log_size,
            report.tail,
            result,
            reason,
        )

    async def _decide(
        self, node_id: int, reports: Sequence[wire.AttemptReport]
    ) -> set[wire.AttemptRef]:
        """Decide under lock what becomes of tasks; return the reports that count, or did before."""
        async with self._database.transaction(Lane.NODE) as conn:
            held, at = await leases.lock_attempts(conn, node_id, _keys(reports))
            mine = {one.ref: one for one in reports if _matches(held.get(one.ref.task), one)}
            ended = []
            if at is not None:
                ended = [self._settle(held[ref.task], one, at) for ref, one in mine.items()]
                await leases.end_attempts(conn, ended)
            rest = [one for one in reports if one.ref not in mine]
            before = await leases.read_accepted(conn, node_id, _keys(rest)) if rest else set()
            if rest:
                # Whatever we say about these, the agent forgets them.
                await confirm(conn)
        telemetry.REPORTS_STALE.inc(len(rest) - len(before))
        self.wake_ended(ended)
        known = {one.ref for one in rest if (one.ref.task, one.ref.attempt) in before}
        return mine.keys() | known

    def wake_ended(self, ended: Sequence[Ended]) -> None:
        """Let others know what has become free, and what waits again."""
        if not ended:
            return
        for outcome, times in Counter(one.outcome for one in ended).items():
            telemetry.ATTEMPTS_ENDED.labels(outcome.value).inc(times)
        ids = frozenset(one.held.id for one in ended)
        waiting = [
            ((one.held.tenant_id, one.held.shape_id), one.start_by)
            for one in ended
            if one.status is Status.WAITING
        ]
        # Of what has ended others may have waited for; that is for the leader to find out.
        is_due = any(one.status is not Status.WAITING for one in ended)
        self._tell(ids, waiting, is_due=is_due)

    def _tell(
        self, ended: Set[int], waiting: Sequence[tuple[Pair, datetime]], *, is_due: bool
    ) -> None:
        self._bell.ring(ended)
        self._wake(waiting)
        if is_due and self._settler.tell():
            self.nudge()
        pairs = frozenset(pair for pair, _ in waiting)
        self._herald.tell(News(work=True, pairs=pairs, due=is_due, tasks=frozenset(ended)))

    def _settle(self, held: Held, report: wire.AttemptReport, at: datetime) -> Ended:
        """Decide what becomes of a task, and put it as the store wants it."""
        tally = retry.count(held.tally, report.outcome)
        decision = retry.decide(
            self._policy(held),
            report.outcome,
            tally,
            is_cancelled=held.cancel_requested_at is not None,
            now=at,
            jitter=self._dice.random(),
        )
        status, ready_at, start_by, task_reason = _next(decision, held, report.reason, at)
        result = None
        if status is Status.DONE:
            result, task_reason = self._result(report)
        finished_at = max(held.leased_at, at - timedelta(seconds=report.ended_ago))
        started_at = None
        if report.ran is not None:
            started_at = max(held.leased_at, finished_at - timedelta(seconds=report.ran))
        return Ended(
            held=held,
            outcome=report.outcome,
            exit_code=report.exit_code,
            reason=report.reason,
            started_at=started_at,
            finished_at=finished_at,
            usage=report.usage,
            log_size=report.log_size,
            log_tail=report.tail,
            status=status,
            ready_at=ready_at,
            start_by=start_by,
            tally=tally,
            result=result,
            task_reason=task_reason,
        )

    def _policy(self, held: Held) -> RetryPolicy:
        settings = self._settings.retries
        return RetryPolicy(
            max_attempts=held.max_attempts,
            on_lost=held.on_lost,
            base_delay=settings.base_delay,
            max_delay=settings.max_delay,
            max_losses=settings.max_losses,
        )

    def _result(self, report: wire.AttemptReport) -> tuple[str | None, Reason | None]:
        """Return the result as text, or why it is not kept; neither when there is none."""
        if report.result is None:
            return None, None
        limit = self._settings.execution.result_limit
        if report.result_limit is not None:
            # The plan's, as the agent was told it: beyond it, what came is cut off.
            limit = min(limit, report.result_limit)
        if len(report.result) > limit:
            return None, _not_kept(f"it is larger than {limit} bytes")
        try:
            msgspec.json.decode(report.result)
            return report.result.decode(), None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return None, _not_kept(f"it is not JSON ({error})")

    async def cancel(self, credential: Credential, ids: Sequence[int]) -> dict[int, bool]:
        """Cancel tasks of the caller's tenant; True for those that have ended at once."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            found = await tasks.request_cancel(conn, credential.tenant_id, ids)
            if len(found) < len(ids):
                # What has ended already may have been cancelled by somebody who got no answer.
                await confirm(conn)
        self.tell_cancelled(found)
        return found

    def tell_cancelled(self, found: Mapping[int, bool]) -> None:
        """Let others know what was cancelled; True for what has ended at once."""
        self._bell.ring(found)
        runs = not all(found.values())
        if runs:
            self._polls.nudge(None)
        is_due = any(found.values())
        if is_due:
            self.nudge()
        self._herald.tell(
            News(due=is_due, tasks=frozenset(found), incarnations=None if runs else NONE)
        )

    def _wake(self, waiting: Sequence[tuple[Pair, datetime]]) -> None:
        self._prioritizer.note(waiting)
        self._resource_manager.nudge()


class Patience:
    """Holds expiry back for one TTL whenever the nodes may have been unable to renew.

    After a restart of PostgreSQL, a step of its clock, a change of leader, or a time in which
    not even the leader could renew, a lease that looks expired says nothing about its node.
    Nor does it when nobody could look for a whole TTL: what kept us waiting, say a locked table,
    has kept the heartbeats waiting, too.
    """

    def __init__(self, ttl: timedelta) -> None:
        self._ttl = ttl
        self._seen: tuple[Term, float, datetime, float] | None = None
        self._until = 0.0
        self._looked_at = 0.0

    def is_over(self, term: Term, led_since: float, started_at: datetime, at: datetime) -> bool:
        """Say whether leases that have run out may be expired."""
        looked_at, self._looked_at = self._looked_at, clock.monotonic()
        offset = at.timestamp() - self._looked_at
        is_new = (
            self._seen is None
            or self._looked_at - looked_at > self._ttl.total_seconds()
            or self._seen[:3] != (term, led_since, started_at)
            or abs(self._seen[3] - offset) > CLOCK_STEP.total_seconds()
        )
        self._seen = (term, led_since, started_at, offset)
        if is_new:
            self._until = self._looked_at + self._ttl.total_seconds()
        return self._looked_at >= self._until


async def _expire(conn: Connection, at: datetime) -> None:
    for incarnation, node in await leases.expire_incarnations(conn, at):
        log.warning("node %s is lost (incarnation %s)", node, incarnation)


def _keys(reports: Sequence[wire.AttemptReport]) -> list[tuple[int, int, int]]:
    return [(one.ref.task, one.ref.attempt, one.ref.token) for one in reports]


def _not_kept(why: str) -> Reason:
    return Reason("result_not_kept", f"Done, but its result was not kept: {why}.")


def _matches(held: Held | None, report: wire.AttemptReport) -> bool:
    return held is not None and (held.attempt, held.token) == (
        report.ref.attempt,
        report.ref.token,
    )


def _next(
    decision: retry.Decision, held: Held, reason: Reason | None, at: datetime
) -> tuple[Status, datetime, datetime, Reason | None]:
    """Return the status, ready time, start_by and reason that a decision leads to."""
    match decision:
        case Finish():
            return Status.DONE, at, held.start_by, None
        case Cancel():
            cancelled = Reason("cancelled", "Cancelled while it ran.")
            return Status.CANCELLED, at, held.start_by, cancelled
        case Retry(when, is_its_turn):
            status = Status.SCHEDULED if when > at else Status.WAITING
            start_by = held.start_by if is_its_turn else when + held.delay_tolerance
            return status, when, start_by.replace(microsecond=0), reason
        case DeadLetter(why):
            return Status.FAILED, at, held.start_by, _combined(why, reason)


def _combined(why: Reason, last: Reason | None) -> Reason:
    """Say why the task is given up, and what went wrong last."""
    if last is None:
        return why
    return Reason(
        why.code if why.code != "attempts_exhausted" else last.code,
        f"{last.message} {why.message}",
        {**last.details, "given_up": why.code},
    )
