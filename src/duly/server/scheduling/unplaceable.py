"""Ends what no node could ever fit, once nodes have had time to join.

A tenant may ask for as many impossible things as it has tasks, each a shape of its own. So this is
done beside the rounds, which only say which shapes fit on no node that is there: a survey asks
what becomes of those, and what is to end does so in batches, with a pause between them.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice

from duly import clock
from duly.config import SchedulingSettings
from duly.model.node import Known
from duly.model.shape import Shape
from duly.model.task import Reason, Status
from duly.policy import placement
from duly.policy.explain import never_fits
from duly.server.bell import Bell
from duly.server.cluster_manager import ClusterManager
from duly.server.herald import Herald
from duly.server.lines import Pair
from duly.server.news import News
from duly.server.offload import offload
from duly.server.pace import Pace
from duly.server.prioritizer import Prioritizer
from duly.server.service import Service
from duly.store import leases, servers
from duly.store.database import Database, now
from duly.store.servers import Term

MAX_PAIRS_PER_BATCH = 200
MAX_TASKS_PER_BATCH = 250
"""What ends in one transaction: some tens of milliseconds. More tasks than pairs, so that a batch
of pairs with one task each is seen to be complete."""
BETWEEN_BATCHES = timedelta(milliseconds=100)
"""How long PostgreSQL is left to others before the next batch."""


class Unplaceable(Service):
    """Ends tasks that have waited long enough for a node that could fit them."""

    def __init__(
        self,
        database: Database,
        settings: SchedulingSettings,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        bell: Bell,
        herald: Herald,
    ) -> None:
        super().__init__(settings.interval)
        self._database = database
        self._grace = settings.unplaceable_after
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._bell = bell
        self._herald = herald
        self._term: Term | None = None
        self._suspects: Mapping[int, Shape] = {}
        self._since: dict[int, float] = {}
        """Since when it is known of a shape that no known node could ever fit it."""
        self._due: deque[Pair] = deque()
        """Whose time is up as the last survey found it, and which were not looked at since."""
        self._pace = Pace(timedelta(0))

    def suspect(self, shapes: Mapping[int, Shape]) -> None:
        """Take in which of the shapes that wait fit on no node that is there now."""
        self._suspects = shapes

    def pause(self) -> timedelta:
        """Return how long others have their turn before the next batch, or the next survey."""
        return BETWEEN_BATCHES if self._due else self.interval

    async def tick(self) -> bool:
        """End one batch; find out what is due if nothing is left of the last survey."""
        term = self._cluster_manager.term
        if term != self._term or not self._suspects:
            self._term = term
            self._since = {}
            self._due.clear()
        if term is None or not self._suspects:
            return False
        nodes = await self._read_known()
        if not self._due and self._pace.is_due:
            with self._pace.step():
                await self._survey(nodes)
        if self._due:
            await self._end_batch(term, nodes)
        return False

    async def _read_known(self) -> Sequence[Known]:
        async with self._database.connection() as conn:
            return await leases.read_known(conn)

    async def _survey(self, nodes: Sequence[Known]) -> None:
        """Find the pairs of which nothing could be placed for as long as the grace."""
        hopeless = await _hopeless_of(self._suspects, nodes)
        at = clock.monotonic()
        self._since = {shape: self._since.get(shape, at) for shape in hopeless}
        grace = self._grace.total_seconds()
        over = {shape for shape, since in self._since.items() if at - since >= grace}
        if over:
            self._due.extend(self._prioritizer.pairs_of(over))

    async def _end_batch(self, term: Term, nodes: Sequence[Known]) -> None:
        """End tasks of the first pairs that are due, unless a node has come that could fit them."""
        pairs = list(islice(self._due, MAX_PAIRS_PER_BATCH))
        suspects = self._suspects
        asked = {shape: suspects[shape] for _, shape in pairs if shape in suspects}
        hopeless = await _hopeless_of(asked, nodes)
        reasons = await offload(len(hopeless) * len(nodes), _reasons, hopeless, nodes)
        ending = [pair for pair in pairs if pair[1] in reasons]
        ended, has_more = await self._end(term, ending, reasons)
        if not has_more:
            for _ in pairs:
                self._due.popleft()
        self._bell.ring(ended)
        self._herald.tell(News(tasks=frozenset(ended)))

    async def _end(
        self, term: Term, pairs: Sequence[Pair], reasons: Mapping[int, Reason]
    ) -> tuple[Iterable[int], bool]:
        """End tasks of some pairs; say which, and whether there may be more of them."""
        if not pairs:
            return [], False
        async with self._database.transaction() as conn:
            await servers.hold(conn, term)
            ready_before = await now(conn) - self._grace
            locked = await leases.lock_unplaceable(
                conn, pairs, ready_before=ready_before, limit=MAX_TASKS_PER_BATCH
            )
            ended = await leases.end_unstarted(
                conn, {task: reasons[shape] for task, shape in locked.items()}, Status.FAILED
            )
        return ended, len(locked) == MAX_TASKS_PER_BATCH


async def _hopeless_of(shapes: Mapping[int, Shape], nodes: Sequence[Known]) -> dict[int, Shape]:
    return await offload(len(shapes) * len(nodes), _hopeless, shapes, nodes)


def _hopeless(shapes: Mapping[int, Shape], nodes: Sequence[Known]) -> dict[int, Shape]:
    """Return those of the shapes that no node could ever fit; without any node, that is none."""
    if not nodes:
        return {}
    return {
        id_: shape for id_, shape in shapes.items() if not placement.could_ever_fit(shape, nodes)
    }


def _reasons(shapes: Mapping[int, Shape], nodes: Sequence[Known]) -> dict[int, Reason]:
    """Return why no node could ever fit each of the shapes."""
    return {id_: never_fits(shape, nodes) for id_, shape in shapes.items()}
