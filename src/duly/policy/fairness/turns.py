"""Decides whose turn it is: which waiting tasks come into the window, and in which order.

Tasks to which their tenant is entitled go first, by queue and then by earliest start_by, up to the
first of each tenant to which it is not. All others follow by the lowest recent use per weight of
their tenant; queue and start_by break ties. Shares are charged as the window fills. So the earliest
deadline goes first while no tenant is beyond its fair share, and capacity is divided by weight as
soon as one is: urgency moves a task ahead within its tenant's share, never beyond it. The order of
tasks within a tenant is that of `duly.policy.queueing`. If the tenant asked for it, its users
divide its fair share by the same rules, and that is the order of each user's tasks.

The same function serves the scheduler, the simulator and `duly why`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from duly.model.shape import Shape
from duly.policy.fairness.recent_use import ROUNDING
from duly.policy.fairness.shares import PoolShares
from duly.policy.queueing import Order, Rankable

Task = TypeVar("Task", bound=Rankable)
SubqueueKey = tuple[int, int]
"""The tenant and the shape of a subqueue."""


class Turn(NamedTuple, Generic[Task]):
    """A task of the window, and why it is its turn."""

    task: Task
    is_entitled: bool
    """Whether its tenant's share with it is within the fair share; else it goes by recent use."""


def user_of(shape: Shape) -> int:
    """Return the user whose tasks have a shape; tasks without one share as if they had another."""
    return shape.user_id or 0


class Gate(Protocol):
    """Decides whether a task may start at all, given those that were admitted before it."""

    def admit(self, task: Rankable) -> bool:
        """Admit the task and count it; False means that its whole subqueue has to wait."""


class Shares(NamedTuple):
    """The shares of every pool that waiting tasks may run in."""

    pools: Mapping[int, PoolShares]
    """By shape."""
    shapes: Mapping[int, Shape]
    now: float = 0.0
    """In seconds."""
    users: Mapping[tuple[int, PoolShares], PoolShares] = {}
    """By tenant and pool: how the tenant's users divide its fair share, if they do."""

    def fractions(self, shape_id: int) -> tuple[float, ...]:
        """Return which fraction of its pool a task takes, by kind of resource."""
        return self.pools[shape_id].fractions(shape_id, self.shapes[shape_id])

    def may_entitle(self, shape_id: int) -> bool:
        """Return True if any tenant's fair share is large enough for a task of a shape."""
        largest = self.pools[shape_id].largest_fair_share + ROUNDING
        return max(self.fractions(shape_id), default=0.0) <= largest

    def is_entitled(self, key: SubqueueKey) -> bool:
        """Return True if a tenant is entitled to one more task of a shape."""
        tenant, shape_id = key
        return self.pools[shape_id].is_entitled(tenant, self.fractions(shape_id))

    def use_per_weight(self, tenant: int, shapes: Iterable[int]) -> float:
        """Return a tenant's recent use, in that pool of some shapes where it is lowest."""
        return min(self.pools[shape].use_per_weight(tenant) for shape in shapes)

    def by_user(self, keys: Sequence[SubqueueKey]) -> Sequence[SubqueueKey]:
        """Return some subqueues of one tenant in the order of their users' turns.

        The first subqueue of every user comes before the second one of any.
        """
        if not self.users or not keys:
            return keys
        counts: Counter[int] = Counter()
        turns: list[tuple[int, float, SubqueueKey]] = []
        for tenant, shape_id in keys:
            users = self.users.get((tenant, self.pools[shape_id]))
            if users is None:
                return keys
            user = user_of(self.shapes[shape_id])
            counts[user] += 1
            turns.append((counts[user], users.use_per_weight(user), (tenant, shape_id)))
        return [key for *_, key in sorted(turns, key=itemgetter(0, 1))]

    def charge(self, key: SubqueueKey) -> None:
        """Count a task that was chosen."""
        tenant, shape_id = key
        pool, fractions = self.pools[shape_id], self.fractions(shape_id)
        pool.charge(tenant, fractions)
        if (users := self.users.get((tenant, pool))) is not None:
            users.charge(user_of(self.shapes[shape_id]), fractions)

    def reset(self) -> None:
        """Take back what was charged."""
        for pool in (*self.pools.values(), *self.users.values()):
            pool.reset()

    def settle(self) -> None:
        """Take what was charged into recent use."""
        for pool in {*self.pools.values(), *self.users.values()}:
            pool.settle()


def take(
    subqueues: Mapping[SubqueueKey, Sequence[Task]],
    size: int,
    order: Order,
    shares: Shares,
    gate: Gate,
) -> list[Turn[Task]]:
    """Return the first `size` tasks, in the order of their turns, and charge them.

    The tasks of a subqueue come by rank.
    """
    window: list[Turn[Task]] = []
    queues = _by_tenant(subqueues, order, shares)
    heap = [(queue.deadline_key(), queue) for queue in queues]
    heapify(heap)
    beyond: list[_TenantQueue[Task]] = []
    while heap and len(window) < size:
        queue = heap[0][1]
        # Behind a task that has to wait, no later one of its tenant goes first.
        if not queue.is_entitled:
            beyond.append(queue)
            heappop(heap)
            continue
        if queue.take(gate):
            window.append(Turn(queue.taken, is_entitled=True))
        if queue.is_empty:
            heappop(heap)
        else:
            heapreplace(heap, (queue.deadline_key(), queue))
    heap = [(queue.use_key(), queue) for queue in beyond]
    heapify(heap)
    while heap and len(window) < size:
        queue = heap[0][1]
        if queue.take(gate):
            window.append(Turn(queue.taken, is_entitled=False))
        if queue.is_empty:
            heappop(heap)
        else:
            heapreplace(heap, (queue.use_key(), queue))
    return window


def _by_tenant(
    subqueues: Mapping[SubqueueKey, Sequence[Task]], order: Order, shares: Shares
) -> "Iterable[_TenantQueue[Task]]":
    queues: dict[tuple[int, PoolShares], _TenantQueue[Task]] = {}
    for key, tasks in subqueues.items():
        if tasks:
            tenant, pool = key[0], shares.pools[key[1]]
            if (queue := queues.get((tenant, pool))) is None:
                users = shares.users.get((tenant, pool))
                queue = queues[tenant, pool] = (
                    _TenantQueue(tenant, pool, order)
                    if users is None
                    else _UsersQueue(tenant, pool, order, shares.shapes, users)
                )
            queue.add(tasks, shares.fractions(key[1]))
    return queues.values()


_Heap = list[tuple[tuple[Any, ...], int, Sequence[Task], Sequence[float]]]
"""Of each subqueue: the sort key of its head, the head's position, the tasks, and which fraction of
the pool each takes, by kind."""


class _TenantQueue(Generic[Task]):
    """The tasks of one tenant for one pool, in its own order."""

    __slots__ = ("_due_length", "_heap", "_key", "_share", "taken")

    def __init__(self, tenant: int, pool: PoolShares, order: Order) -> None:
        self._share = pool.of_tenant(tenant)
        self._key = order.key
        self._due_length = order.due_length
        self._heap: _Heap[Task] = []
        """That of the user whose turn it is, if the tenant's users share."""
        self.taken: Task
        """The task that was taken last."""

    def add(self, tasks: Sequence[Task], fractions: Sequence[float]) -> None:
        """Add the tasks of a subqueue."""
        heappush(self._heap, (self._key(tasks[0]), 0, tasks, fractions))

    @property
    def is_empty(self) -> bool:
        """Return True if no task is left."""
        return not self._heap

    @property
    def is_entitled(self) -> bool:
        """Return True if the tenant is entitled to its first task."""
        return self._share.is_entitled(self._heap[0][3])

    def deadline_key(self) -> tuple[Any, ...]:
        """Return the key among entitled tasks: priority and what follows count within a tenant."""
        key, due = self._heap[0][0], self._due_length
        return *key[:due], self._share.use_per_weight, *key[due:]

    def use_key(self) -> tuple[Any, ...]:
        """Return the key among tasks beyond the fair shares of their tenants."""
        return self._share.use_per_weight, *self._heap[0][0]

    def take(self, gate: Gate) -> bool:
        """Take the first task and charge it; False if its subqueue has to wait, and is dropped."""
        _, position, tasks, fractions = self._heap[0]
        task = tasks[position]
        if not gate.admit(task):
            heappop(self._heap)
            return False
        self.taken = task
        self._share.charge(fractions)
        position += 1
        if position < len(tasks):
            heapreplace(self._heap, (self._key(tasks[position]), position, tasks, fractions))
        else:
            heappop(self._heap)
        return True


class _UsersQueue(_TenantQueue[Task]):
    """The same of a tenant whose users divide its fair share."""

    __slots__ = ("_heaps", "_shapes", "_users")

    def __init__(
        self,
        tenant: int,
        pool: PoolShares,
        order: Order,
        shapes: Mapping[int, Shape],
        users: PoolShares,
    ) -> None:
        super().__init__(tenant, pool, order)
        self._shapes = shapes
        self._users = users
        self._heaps: dict[int, _Heap[Task]] = {}

    def add(self, tasks: Sequence[Task], fractions: Sequence[float]) -> None:
        """Add the tasks of a subqueue, which are of one user."""
        heap = self._heaps.setdefault(user_of(self._shapes[tasks[0].shape_id]), [])
        heappush(heap, (self._key(tasks[0]), 0, tasks, fractions))
        self._heap = self._first_heap()

    def take(self, gate: Gate) -> bool:
        """Take the first task of the user whose turn it is."""
        _, position, tasks, fractions = self._heap[0]
        user = user_of(self._shapes[tasks[position].shape_id])
        is_taken = super().take(gate)
        if is_taken:
            self._users.charge(user, fractions)
        if not self._heap:
            del self._heaps[user]
        self._heap = self._first_heap()
        return is_taken

    def _first_heap(self) -> _Heap[Task]:
        return min(self._heaps.items(), key=self._turn)[1] if self._heaps else []

    def _turn(self, item: tuple[int, _Heap[Task]]) -> tuple[Any, ...]:
        user, heap = item
        key, _, _, fractions = heap[0]
        use, due = self._users.use_per_weight(user), self._due_length
        if self._users.is_entitled(user, fractions):
            return False, *key[:due], use, *key[due:]
        return True, use, *key
