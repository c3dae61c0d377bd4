"""Lets whoever leads know that there is something to do, here or on another server."""

from collections.abc import Sequence, Set
from datetime import datetime, timedelta

from duly import telemetry
from duly.model.task import Status
from duly.server.cluster_manager import ClusterManager
from duly.server.herald import Herald
from duly.server.lines import EARLIEST
from duly.server.news import News
from duly.server.prioritizer import Prioritizer
from duly.server.queue_manager import QueueManager
from duly.server.resource_manager import ResourceManager
from duly.store.tasks import NewTask, Stored
from duly.store.waiting import Head


class Waker:
    """Nudges the components of the leader."""

    def __init__(
        self,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        resource_manager: ResourceManager,
        queue_manager: QueueManager,
        herald: Herald,
    ) -> None:
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._resource_manager = resource_manager
        self._queue_manager = queue_manager
        self._herald = herald

    def expect(self, new: Sequence[NewTask]) -> None:
        """Say that tasks are about to be stored."""
        if self._cluster_manager.term is not None:
            self._resource_manager.expect(
                {(task.tenant_id, task.shape_id) for task in new if task.spec.run_at is None}
            )

    def wake(self, new: Sequence[NewTask], stored: Sequence[Stored]) -> None:
        """Say that tasks were stored, each as it was answered."""
        telemetry.TASKS_SUBMITTED.inc(len(stored))
        later = {one.id: one for one in stored if one.status is Status.SCHEDULED}
        pairs = {(task.tenant_id, task.shape_id) for task in new if task.id not in later}
        # What is due later than that is found by looking, which the queue manager does as often.
        soon = self._queue_manager.interval
        due = any(
            one.ready_at is None or one.ready_at - one.submitted_at <= soon
            for one in later.values()
        ) or any(task.blocked_by for task in new)
        heads = () if self._cluster_manager.term is None else _heads(new, stored)
        self.announce(pairs, since=_earliest(stored), due=due, heads=heads)

    def wake_batch(self, new: Sequence[NewTask], since: datetime) -> None:
        """Say that a batch was stored, of which the first must start by `since`."""
        telemetry.TASKS_SUBMITTED.inc(len(new))
        pairs = {(task.tenant_id, task.shape_id) for task in new}
        due = any(task.spec.run_at is not None or task.blocked_by for task in new)
        self.announce(pairs, since=since, due=due)

    def announce(
        self,
        pairs: Set[tuple[int, int]],
        *,
        since: datetime = EARLIEST,
        due: bool,
        heads: Sequence[Head] = (),
    ) -> None:
        """Let whoever leads look, here or on another server.

        `heads` are those of which it is known that they have just come into their lines.
        """
        if not pairs and not due:
            return
        if self._cluster_manager.term is None:
            self._herald.tell(News(work=bool(pairs), pairs=frozenset(pairs), due=due))
            return
        if pairs:
            stored = {(head.tenant_id, head.shape_id) for head in heads}
            self._prioritizer.note((pair, since) for pair in pairs - stored)
            self._prioritizer.note_stored(heads)
            self._resource_manager.offer({shape for _, shape in pairs})
        if due:
            self._queue_manager.nudge()


def _heads(new: Sequence[NewTask], stored: Sequence[Stored]) -> list[Head]:
    """Return what was stored and may start, as a look at its line would find it."""
    start_by = {one.id: one.start_by for one in stored if one.status is Status.WAITING}
    return [
        Head(
            id=task.id,
            tenant_id=task.tenant_id,
            shape_id=task.shape_id,
            start_by=at,
            priority=task.spec.priority,
            remaining_path=task.ahead.path,
            execution_cap=task.spec.execution_cap,
            avoid_node_id=None,
            delay_tolerance=min(task.spec.delay_tolerance, task.ahead.patience or timedelta.max),
            losses=0,
        )
        for task in new
        if (at := start_by.get(task.id)) is not None
    ]


def _earliest(stored: Sequence[Stored]) -> datetime:
    """Return by when the first of what was stored must start."""
    return min((one.start_by for one in stored if one.start_by), default=EARLIEST)
