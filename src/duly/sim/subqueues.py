"""The waiting tasks, in subqueues by tenant and shape, each in the order of its policy."""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from duly.model.queues.queue import Queue
from duly.model.shape import Shape
from duly.policy.fairness.shares import PoolKey, pool_key
from duly.sim.task import SimTask

SubqueueKey = tuple[int, int]
SortKey = Callable[[SimTask], Any]
MAX_LEFT_BEHIND = 1024
"""So many tasks that have left may stay at the front of a list before it is shortened."""


class Subqueue:
    """The waiting tasks of one tenant and shape, first to last."""

    __slots__ = ("_head", "_key", "_tasks")

    def __init__(self, key: SortKey) -> None:
        self._key = key
        self._tasks: list[SimTask] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._tasks) - self._head

    def __iter__(self) -> Iterator[SimTask]:
        return iter(self._tasks[self._head :])

    def push(self, task: SimTask) -> None:
        """Put a task in its place."""
        tasks = self._tasks
        if len(tasks) == self._head or self._key(tasks[-1]) <= self._key(task):
            tasks.append(task)
        else:
            insort(tasks, task, lo=self._head, key=self._key)

    def first(self, count: int) -> Sequence[SimTask]:
        """Return the first tasks."""
        return self._tasks[self._head : self._head + count]

    def remove(self, task: SimTask) -> None:
        """Remove a task, which is among the first."""
        tasks, head = self._tasks, self._head
        if tasks[head] is task:
            self._head = head = head + 1
            if head > MAX_LEFT_BEHIND and 2 * head > len(tasks):
                del tasks[:head]
                self._head = 0
        else:
            del tasks[tasks.index(task, head)]


class Waiting:
    """All subqueues with waiting tasks."""

    def __init__(
        self, shapes: Mapping[int, Shape], key: SortKey, postpone_slack: timedelta
    ) -> None:
        self._shapes = shapes
        self._postpone_slack = postpone_slack
        self._key = key
        self._pools = {id_: pool_key(shape) for id_, shape in shapes.items()}
        self._off_peak = {id_ for id_, shape in shapes.items() if shape.queue == Queue.OFF_PEAK}
        self.postponable = set(self._off_peak)
        """The shapes of tasks that have to wait at peak time."""
        self.by_shape: dict[int, dict[int, Subqueue]] = {}
        """Subqueues that are not empty, by shape and then tenant."""
        self.counts: dict[int, int] = {}
        """Waiting tasks, by shape."""
        self.backlog: dict[PoolKey, dict[int, int]] = {key: {} for key in self._pools.values()}
        """Waiting tasks by pool and tenant, without those that wait for quiet hours."""
        self._since: dict[tuple[PoolKey, int], float] = {}
        self.backlogged: dict[int, list[tuple[float, float]]] = {}
        """From when to when each tenant had tasks waiting in a pool without a break."""
        self._tenants: dict[int, int] = {}
        """The number of subqueues of each tenant that has any."""

    @property
    def may_be_postponed(self) -> bool:
        """Return True if tasks wait that are postponed at peak time."""
        return not self.postponable.isdisjoint(self.counts)

    @property
    def has_one_tenant(self) -> bool:
        """Return True if the tasks of only one tenant wait."""
        return len(self._tenants) == 1

    def push(self, task: SimTask, now: float) -> None:
        """Let a task wait."""
        shape_id, tenant_id = task.shape_id, task.tenant_id
        if (subqueues := self.by_shape.get(shape_id)) is None:
            subqueues = self.by_shape[shape_id] = {}
            self.counts[shape_id] = 0
        if (subqueue := subqueues.get(tenant_id)) is None:
            subqueue = subqueues[tenant_id] = Subqueue(self._key)
            self._tenants[tenant_id] = self._tenants.get(tenant_id, 0) + 1
        subqueue.push(task)
        self.counts[shape_id] += 1
        if task.delay_tolerance > self._postpone_slack:
            self.postponable.add(shape_id)
        if shape_id not in self._off_peak:
            backlog = self.backlog[self._pools[shape_id]]
            if tenant_id in backlog:
                backlog[tenant_id] += 1
            else:
                backlog[tenant_id] = 1
                self._since[self._pools[shape_id], tenant_id] = now

    def remove(self, task: SimTask, now: float) -> None:
        """Take out a task that starts."""
        shape_id, tenant_id = task.shape_id, task.tenant_id
        subqueues = self.by_shape[shape_id]
        subqueue = subqueues[tenant_id]
        subqueue.remove(task)
        self.counts[shape_id] -= 1
        if not subqueue:
            del subqueues[tenant_id]
            self._tenants[tenant_id] -= 1
            if not self._tenants[tenant_id]:
                del self._tenants[tenant_id]
            if not subqueues:
                del self.by_shape[shape_id], self.counts[shape_id]
        if shape_id not in self._off_peak:
            backlog = self.backlog[self._pools[shape_id]]
            if left := backlog[tenant_id] - 1:
                backlog[tenant_id] = left
            else:
                del backlog[tenant_id]
                since = self._since.pop((self._pools[shape_id], tenant_id))
                if since < now:
                    self.backlogged.setdefault(tenant_id, []).append((since, now))
