"""Wakes up the leader's components when there is work for them, on this server or another one.

On the leader, tasks that were just stored go straight into the prioritizer. On any other server, a
hint goes out over the server bus.
"""

from collections.abc import Sequence, Set
from datetime import datetime, timedelta

from duly import telemetry
from duly.model.task import Status
from duly.policy.fairness.turns import SubqueueKey
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.scheduling.resource_manager import ResourceManager
from duly.server.scheduling.subqueues.prioritizer import Prioritizer
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from duly.server.service import Service
from duly.store.tasks.subqueues import Head
from duly.store.tasks.tasks import NewTask, StoredTask


class LeaderNudge:
    """Notifies the leader of tasks that are being stored, were stored, or may start."""

    def __init__(
        self,
        cluster_manager: ClusterManager,
        prioritizer: Prioritizer,
        resource_manager: ResourceManager,
        queue_manager: Service,
        server_bus: ServerBus,
    ) -> None:
        self._cluster_manager = cluster_manager
        self._prioritizer = prioritizer
        self._resource_manager = resource_manager
        self._queue_manager = queue_manager
        self._server_bus = server_bus

    def announce_expected(self, new: Sequence[NewTask]) -> None:
        """Notify the leader, if that is this server, that tasks are being stored."""
        if self._cluster_manager.term is not None:
            self._resource_manager.expect_tasks(
                {(task.tenant_id, task.shape_id) for task in new if task.spec.run_at is None}
            )

    def announce_stored(self, new: Sequence[NewTask], stored: Sequence[StoredTask]) -> None:
        """Notify the leader of tasks that were stored; `stored` are the rows of `new`."""
        telemetry.TASKS_SUBMITTED.inc(len(stored))
        scheduled = {row.id: row for row in stored if row.status is Status.SCHEDULED}
        keys = {(task.tenant_id, task.shape_id) for task in new if task.id not in scheduled}
        # A task that is due later than that is found by the queue manager's next poll.
        poll_interval = self._queue_manager.interval
        due = any(
            row.ready_at is None or row.ready_at - row.submitted_at <= poll_interval
            for row in scheduled.values()
        ) or any(task.blocked_by for task in new)
        heads = () if self._cluster_manager.term is None else _heads(new, stored)
        self.announce_ready(keys, start_by=_earliest(stored), due=due, heads=heads)

    def announce_batch(self, new: Sequence[NewTask], start_by: datetime) -> None:
        """Notify the leader of a batch that was stored, whose earliest start_by is given."""
        telemetry.TASKS_SUBMITTED.inc(len(new))
        keys = {(task.tenant_id, task.shape_id) for task in new}
        due = any(task.spec.run_at is not None or task.blocked_by for task in new)
        self.announce_ready(keys, start_by=start_by, due=due)

    def announce_ready(
        self,
        keys: Set[SubqueueKey],
        *,
        start_by: datetime = UNKNOWN_START_BY,
        due: bool,
        heads: Sequence[Head] = (),
    ) -> None:
        """Notify the leader that subqueues may have new tasks, none before `start_by`.

        `heads` are tasks that have just come into their subqueues. `due` means that a task may
        become due earlier than the queue manager's next poll.
        """
        if not keys and not due:
            return
        if self._cluster_manager.term is None:
            self._server_bus.publish(Hint(work=bool(keys), subqueues=frozenset(keys), due=due))
            return
        if keys:
            keys_of_heads = {(head.tenant_id, head.shape_id) for head in heads}
            self._prioritizer.mark_ready((key, start_by) for key in keys - keys_of_heads)
            self._prioritizer.add_stored(heads)
            self._resource_manager.nudge_for({shape for _, shape in keys}, start_by)
        if due:
            self._queue_manager.nudge()


def _heads(new: Sequence[NewTask], stored: Sequence[StoredTask]) -> list[Head]:
    """Return the stored tasks that may start, as a read of their subqueues would return them."""
    start_bys = {row.id: row.start_by for row in stored if row.status is Status.WAITING}
    return [
        Head(
            id=task.id,
            tenant_id=task.tenant_id,
            shape_id=task.shape_id,
            start_by=start_by,
            priority=task.spec.priority,
            remaining_path=task.inherited.remaining_path,
            expected_run_time=task.run_time.expected or task.spec.execution_cap,
            avoid_node_id=None,
            delay_tolerance=min(
                task.spec.delay_tolerance, task.inherited.tolerance or timedelta.max
            ),
            losses=0,
            run_time_bound=min(
                task.spec.execution_cap, task.run_time.bound or task.spec.execution_cap
            ),
        )
        for task in new
        if (start_by := start_bys.get(task.id)) is not None
    ]


def _earliest(stored: Sequence[StoredTask]) -> datetime:
    """Return the earliest start_by of the stored tasks."""
    return min((row.start_by for row in stored if row.start_by), default=UNKNOWN_START_BY)
