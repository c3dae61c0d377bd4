"""Fails tasks that fit on no node, even an idle one, once nodes have had time to join.

A tenant may submit as many impossible tasks as it likes, each with a shape of its own. So this runs
beside the rounds, which only report the shapes that fit on no live node. A survey checks those
against all nodes, and the tasks that are due fail in batches, with a pause between them.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice

from duly import clock
from duly.config import SchedulingSettings
from duly.model.node import AbsentNode, NodeProfile
from duly.model.shape import Shape
from duly.model.task import Reason, Status
from duly.policy import placement
from duly.policy.explanation.no_fitting_node import never_fits
from duly.policy.fairness.turns import SubqueueKey
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.cluster.wakeups import Wakeups
from duly.server.duty_cycle import DutyCycle
from duly.server.offload import offload
from duly.server.scheduling.subqueues.prioritizer import Prioritizer
from duly.server.service import Service
from duly.store.attempts import leases
from duly.store.database import Database, now
from duly.store.fleet import servers
from duly.store.fleet.nodes import read_absent
from duly.store.fleet.servers import Term

MAX_SUBQUEUES_PER_BATCH = 200
MAX_TASKS_PER_BATCH = 250
"""Bounds of one transaction: some tens of milliseconds. More tasks than subqueues, so that a batch
of subqueues with one task each is seen to be complete."""
BATCH_PAUSE = timedelta(milliseconds=100)
"""Leaves PostgreSQL to others between two batches."""


class Unplaceable(Service):
    """Fails tasks that have waited long enough for a node that they could fit on."""

    def __init__(
        self,
        database: Database,
        settings: SchedulingSettings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        wakeups: Wakeups,
        server_bus: ServerBus,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._grace = settings.unplaceable_after
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._wakeups = wakeups
        self._server_bus = server_bus
        self._term: Term | None = None
        self._suspects: Mapping[int, Shape] = {}
        """The shapes that fit on no live node, as the last round reported them."""
        self._unplaceable_since: dict[int, float] = {}
        """Since when each shape fits on no node, live or not."""
        self._due: deque[SubqueueKey] = deque()
        """The subqueues whose grace is over by the last survey, without those handled since."""
        self._survey_cycle = DutyCycle(timedelta(0))

    def set_suspects(self, shapes: Mapping[int, Shape]) -> None:
        """Set the shapes of waiting tasks that fit on no live node, even an idle one.

        Calls wait for a worker that knows their function, however long that takes.
        """
        self._suspects = {id_: shape for id_, shape in shapes.items() if shape.function is None}

    def pause(self) -> timedelta:
        """Return the time until the next batch, or the next survey."""
        return BATCH_PAUSE if self._due else self.interval

    async def tick(self) -> bool:
        """Fail one batch of tasks; survey first if nothing is left of the last survey."""
        term = self._cluster_manager.term
        if term != self._term or not self._suspects:
            self._term = term
            self._unplaceable_since = {}
            self._due.clear()
        if term is None or not self._suspects:
            return False
        nodes = await self._read_nodes()
        if not self._due and self._survey_cycle.is_due:
            with self._survey_cycle.step():
                await self._survey(nodes)
        if self._due:
            await self._fail_batch(term, nodes)
        return False

    async def _read_nodes(self) -> Sequence[NodeProfile]:
        async with self._database.connection() as conn:
            return await leases.read_known_nodes(conn)

    async def _read_removed(self) -> Sequence[AbsentNode]:
        async with self._database.connection() as conn:
            return await read_absent(conn, only_removed=True)

    async def _survey(self, nodes: Sequence[NodeProfile]) -> None:
        """Find the subqueues whose shape has fitted on no node for longer than the grace."""
        unplaceable = await _unplaceable_of(self._suspects, nodes)
        at = clock.monotonic()
        self._unplaceable_since = {
            shape: self._unplaceable_since.get(shape, at) for shape in unplaceable
        }
        grace = self._grace.total_seconds()
        due = {shape for shape, since in self._unplaceable_since.items() if at - since >= grace}
        if due:
            self._due.extend(self._prioritizer.keys_of_shapes(due))

    async def _fail_batch(self, term: Term, nodes: Sequence[NodeProfile]) -> None:
        """Fail tasks of the first subqueues that are due, unless they fit on a new node."""
        keys = list(islice(self._due, MAX_SUBQUEUES_PER_BATCH))
        suspects = self._suspects
        shapes = {shape: suspects[shape] for _, shape in keys if shape in suspects}
        unplaceable = await _unplaceable_of(shapes, nodes)
        removed = await self._read_removed() if unplaceable else []
        work = len(unplaceable) * (len(nodes) + len(removed))
        reasons = await offload(work, _reasons, unplaceable, nodes, removed)
        failing = [key for key in keys if key[1] in reasons]
        failed, has_more = await self._fail(term, failing, reasons)
        if not has_more:
            for _ in keys:
                self._due.popleft()
        self._wakeups.wake(failed)
        self._server_bus.publish(Hint(tasks=frozenset(failed)))

    async def _fail(
        self, term: Term, keys: Sequence[SubqueueKey], reasons: Mapping[int, Reason]
    ) -> tuple[Iterable[int], bool]:
        """Fail tasks of some subqueues; return which, and whether there may be more of them."""
        if not keys:
            return [], False
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            ready_before = await now(conn) - self._grace
            locked = await leases.lock_unplaceable(
                conn, keys, ready_before=ready_before, limit=MAX_TASKS_PER_BATCH
            )
            failed = await leases.end_unstarted(
                conn, {task: reasons[shape] for task, shape in locked.items()}, Status.FAILED
            )
        return failed, len(locked) == MAX_TASKS_PER_BATCH


async def _unplaceable_of(
    shapes: Mapping[int, Shape], nodes: Sequence[NodeProfile]
) -> dict[int, Shape]:
    return await offload(len(shapes) * len(nodes), _unplaceable, shapes, nodes)


def _unplaceable(shapes: Mapping[int, Shape], nodes: Sequence[NodeProfile]) -> dict[int, Shape]:
    """Return the shapes that fit on no node, even an idle one; none if there are no nodes."""
    if not nodes:
        return {}
    return {
        id_: shape for id_, shape in shapes.items() if not placement.could_ever_fit(shape, nodes)
    }


def _reasons(
    shapes: Mapping[int, Shape], nodes: Sequence[NodeProfile], removed: Sequence[AbsentNode]
) -> dict[int, Reason]:
    """Return for each shape why it fits on no node."""
    return {id_: never_fits(shape, nodes, removed) for id_, shape in shapes.items()}
