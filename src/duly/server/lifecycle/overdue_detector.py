"""Finds tasks that have waited past their delay tolerance, records it, and cancels those that ask.

A pass reads the waiting tasks whose start_by has come since the pass before, in pages, by the index
of subqueues. Few tasks get a start_by that such a pass has left behind: lost ones keep theirs, and
an update can shorten a tolerance. A full pass, now and then, finds these as well.

When a cluster is overloaded a million tasks may become overdue at once. So the detector takes a
bounded share of the time, and no locks but those of the tasks that it cancels.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from duly import clock, telemetry
from duly.config import SchedulingSettings
from duly.model.task import OnOverdue, Reason
from duly.policy.explanation.overdue import cancelled_overdue
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.duty_cycle import DutyCycle
from duly.server.lifecycle.canceller import Canceller
from duly.server.service import Service
from duly.store.attempts import leases
from duly.store.database import Connection, Database, now
from duly.store.fleet import fleet_snapshot, servers
from duly.store.fleet.servers import Term
from duly.store.tasks import overdue
from duly.store.tasks.overdue import BEFORE_ALL, BEGINNING_OF_TIME, Cursor, OverdueTask

TASKS_PER_PAGE = 500
OVERLAP = timedelta(seconds=10)
"""How far a pass goes back behind the one before: a task may be committed that much after its
start_by was computed."""
DUTY_DIVISOR = 10
"""The detector takes at most this part of the time: enough to mark 1,000 tasks a second."""
PAGE_INTERVAL = timedelta(milliseconds=50)
FULL_PASS_INTERVAL = timedelta(minutes=1)
FULL_PASS_DIVISOR = 20
"""Full passes take at most this part of the time, so that newly overdue tasks do not wait."""


class _Pass(msgspec.Struct, frozen=True):
    """The range of start_by that is being read, and where in it."""

    above: datetime
    up_to: datetime
    began_at: float
    after: Cursor = BEFORE_ALL


class OverdueDetector(Service):
    """Marks and cancels overdue tasks while this server leads."""

    def __init__(
        self,
        database: Database,
        settings: SchedulingSettings,
        cluster_manager: ClusterManager,
        canceller: Canceller,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._cluster_manager = cluster_manager
        self._canceller = canceller
        self._duty_cycle = DutyCycle(timedelta(0), FULL_PASS_INTERVAL, DUTY_DIVISOR)
        self._term: Term | None = None
        self._pass: _Pass | None = None
        self._passed_to = BEGINNING_OF_TIME
        """Up to which start_by the last pass has read."""
        self._next_full_pass_at = 0.0

    async def tick(self) -> bool:
        """Read the next page of waiting tasks, and mark or cancel those that are overdue."""
        term = self._cluster_manager.term
        if term != self._term:
            self._term, self._pass, self._next_full_pass_at = term, None, 0.0
        if term is None or not self._duty_cycle.is_due:
            return False
        try:
            with self._duty_cycle.step():
                found = await self._read_page()
                if found:
                    await self._handle(term, found)
        except BaseException:
            # What was read, and perhaps not marked, is read again.
            self._pass, self._next_full_pass_at = None, 0.0
            raise
        return False

    def pause(self) -> timedelta:
        """Wait less between the pages of a pass."""
        return self.interval if self._pass is None else min(self.interval, PAGE_INTERVAL)

    async def _read_page(self) -> list[OverdueTask]:
        """Return the overdue tasks of the next page, outside of a transaction.

        Only the leader marks tasks, and a new one begins after the last commit of its predecessor.
        """
        async with self._database.connection() as conn:
            if self._pass is None:
                self._pass = self._new_pass(await now(conn))
            page = await overdue.read_page(
                conn,
                above=self._pass.above,
                up_to=self._pass.up_to,
                after=self._pass.after,
                limit=TASKS_PER_PAGE,
            )
        if page.next_after is None:
            self._end_pass(self._pass)
        else:
            self._pass = msgspec.structs.replace(self._pass, after=page.next_after)
        return page.tasks

    def _new_pass(self, at: datetime) -> _Pass:
        began_at = clock.monotonic()
        is_full = began_at >= self._next_full_pass_at
        above = BEGINNING_OF_TIME if is_full else self._passed_to - OVERLAP
        return _Pass(above, at, began_at)

    def _end_pass(self, ended: _Pass) -> None:
        self._pass = None
        self._passed_to = ended.up_to
        if ended.above == BEGINNING_OF_TIME:
            at = clock.monotonic()
            took = at - ended.began_at
            pause = max(FULL_PASS_INTERVAL.total_seconds(), FULL_PASS_DIVISOR * took)
            self._next_full_pass_at = at + pause

    async def _handle(self, term: Term, found: Sequence[OverdueTask]) -> None:
        """Mark or cancel overdue tasks, in one transaction of the leader's term."""
        marked = [task for task in found if task.on_overdue is OnOverdue.WAIT]
        to_cancel = [task for task in found if task.on_overdue is OnOverdue.CANCEL]
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            if marked:
                await overdue.mark(conn, marked)
            cancelled = set(await _cancel(conn, to_cancel)) if to_cancel else set()
        self._canceller.notify(dict.fromkeys(cancelled))
        counted = [*marked, *(task for task in to_cancel if task.id in cancelled)]
        for labels, times in Counter((task.queue, task.plan) for task in counted).items():
            telemetry.TASKS_OVERDUE.labels(*labels).inc(times)


async def _cancel(conn: Connection, tasks: Sequence[OverdueTask]) -> list[int]:
    """Cancel those of the tasks that still wait, with an estimate of when to try again."""
    stock = await fleet_snapshot.read_snapshot(conn)
    shapes = await leases.read_shapes(
        conn, sorted(stock.shapes | {task.shape_id for task in tasks})
    )
    offers = stock.free(shapes)
    ends = await overdue.read_expected_ends(conn)
    reasons: dict[tuple[int, datetime, timedelta], Reason] = {}
    for task in tasks:
        key = task.shape_id, task.start_by, task.delay_tolerance
        if key not in reasons:
            reasons[key] = cancelled_overdue(shapes[key[0]], offers, *key[1:], ends)
    return await overdue.cancel(
        conn,
        {task.id: reasons[task.shape_id, task.start_by, task.delay_tolerance] for task in tasks},
    )
