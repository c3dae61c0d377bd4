"""Moves tasks on when their time comes and when their attempts end.

While this server leads: lets due tasks wait for their turn, and those that waited for
others; expires silent nodes, and takes back what ran on them. On any server: finishes
what agents report, fenced by (task, attempt, token).
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta
from random import Random

from duly import telemetry, wire
from duly.config import Settings
from duly.model.task import NO_LOST_STARTS, LostStarts, Outcome, Reason, Status, Usage
from duly.server.bell import Bell
from duly.server.cluster_manager import ClusterManager
from duly.server.endings import Endings
from duly.server.herald import Herald
from duly.server.lines import Pair
from duly.server.news import News
from duly.server.pace import Pace
from duly.server.patience import Patience
from duly.server.prioritizer import Prioritizer
from duly.server.reports import is_possible, storable
from duly.server.resource_manager import ResourceManager
from duly.server.service import Service
from duly.server.settler import NOTHING, Settler
from duly.store import leases, servers
from duly.store.database import Connection, Database, confirm, now
from duly.store.edges import Settled
from duly.store.lanes import Lane
from duly.store.leases import Ended, Held, Vitals
from duly.store.servers import Term

log = logging.getLogger(__name__)
BATCH = 1000
BUSY = timedelta(milliseconds=50)
"""How long to leave tasks alone that are due and being changed by somebody."""
LATELY = timedelta(minutes=10)
"""How long after the end of an incarnation each look is for what it has left."""
LONGEST_SWEEP = timedelta(seconds=60)
"""How long an attempt on an incarnation that ended before that may be overlooked, at most."""
LONGEST_START = timedelta(minutes=1)
"""How long after a lease a node may be heard of that counts as lost while it began the task."""


class QueueManager(Service):
    """Releases due tasks, takes back lost ones, and finishes what is reported."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        resource_manager: ResourceManager,
        bell: Bell,
        herald: Herald,
        dice: Random,
    ) -> None:
        super().__init__(settings.scheduling.interval)
        self._database = database
        self._endings = Endings(settings, dice)
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._resource_manager = resource_manager
        self._bell = bell
        self._herald = herald
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
        """Look at all that runs, too, unless the look itself takes long."""
        if not self._sweep.is_due:
            return await leases.read_vitals(conn, lately=LATELY, whole=False)
        with self._sweep.step():
            return await leases.read_vitals(conn, lately=LATELY, whole=True)

    async def take_back(self, conn: Connection, orphans: Sequence[Held]) -> list[Ended]:
        """End attempts whose agent has ended; their rows are locked."""
        if not orphans:
            return []
        at = await now(conn)
        lost = [held.id for held in orphans if not held.has_left]
        starts = await leases.read_lost_starts(conn, lost, within=LONGEST_START)
        ended = [self._lost(held, at, starts.get(held.id, NO_LOST_STARTS)) for held in orphans]
        await leases.end_attempts(conn, ended)
        return ended

    def _lost(self, held: Held, at: datetime, starts: LostStarts) -> Ended:
        outcome, reason = (
            Outcome.LOST,
            Reason("node_lost", "Its agent died, or its node stopped answering."),
        )
        if held.has_left:
            outcome = Outcome.EXPIRED
            reason = Reason("node_left", "Its node left before it began it.")
        ref = wire.AttemptRef(held.id, held.attempt, held.token)
        ran, usage = _known(held, at)
        report = wire.AttemptReport(ref=ref, outcome=outcome, reason=reason, ran=ran, usage=usage)
        return self._endings.decide(held, report, at, starts)

    def hear(self, told: News) -> None:
        """Take in what another server told: times that come, tasks that somebody here waits for."""
        if told.due:
            self.nudge()
        if told.tasks is None:
            self._bell.ring_all()
        else:
            self._bell.ring(told.tasks)

    def look_anew(self) -> None:
        """Find out what waits and what is due, because somebody has changed that unheard."""
        self._prioritizer.recount()
        self._resource_manager.nudge()
        self.nudge()

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
                conn, node_id, [self._endings.succeeded(one) for one in succeeded.values()]
            )
        if done:
            telemetry.ATTEMPTS_ENDED.labels(Outcome.SUCCEEDED.value).inc(len(done))
            self._tell(done.keys(), [], is_due=any(done.values()))
        return {succeeded[task].ref for task in done}

    async def _decide(
        self, node_id: int, reports: Sequence[wire.AttemptReport]
    ) -> set[wire.AttemptRef]:
        """Decide under lock what becomes of tasks; return the reports that count, or did before."""
        async with self._database.transaction(Lane.NODE) as conn:
            held, at = await leases.lock_attempts(conn, node_id, _keys(reports))
            mine = {one.ref: one for one in reports if _matches(held.get(one.ref.task), one)}
            ended = []
            if at is not None:
                ended = [self._endings.decide(held[ref.task], one, at) for ref, one in mine.items()]
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

    def _wake(self, waiting: Sequence[tuple[Pair, datetime]]) -> None:
        self._prioritizer.note(waiting)
        self._resource_manager.nudge()


async def _expire(conn: Connection, at: datetime) -> None:
    for incarnation, node in await leases.expire_incarnations(conn, at):
        log.warning("node %s is lost (incarnation %s)", node, incarnation)


def _known(held: Held, at: datetime) -> tuple[float | None, Usage | None]:
    """Return how long a lost attempt has run, and what it has used, as far as its node told."""
    if held.running_since is None:
        return None, None
    ran = max(0.0, (at - held.running_since).total_seconds())
    if held.cpu_seconds is None or held.peak_memory_mb is None:
        return ran, None
    return ran, Usage(held.cpu_seconds, held.peak_memory_mb, ran)


def _keys(reports: Sequence[wire.AttemptReport]) -> list[tuple[int, int, int]]:
    return [(one.ref.task, one.ref.attempt, one.ref.token) for one in reports]


def _matches(held: Held | None, report: wire.AttemptReport) -> bool:
    return held is not None and (held.attempt, held.token) == (
        report.ref.attempt,
        report.ref.token,
    )
