"""Whose turn it is, computed naively from the definitions, for comparison with `turns.py`."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import msgspec

from duly.model.node import Offer
from duly.model.queues.queue import Queue
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.fairness.recent_use import RecentUse
from duly.policy.fairness.shares import SHARED_KINDS, Competitors, Pool, PoolKey, PoolShares
from duly.policy.fairness.turns import Shares
from duly.policy.queueing import Order

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
SHAPES = {
    0: Shape(Resources(cpu_milli=1000, memory_mb=100)),
    1: Shape(Resources(cpu_milli=1000, memory_mb=900)),
    2: Shape(Resources(cpu_milli=4000, memory_mb=400)),
    3: Shape(Resources(cpu_milli=1000, memory_mb=100), queue=Queue.URGENT),
}
AGO = 60
"""Seconds for which tenants held what they held before."""
SLOT = Fraction(1, 1000)


@dataclass(frozen=True)
class Task:
    """A waiting task."""

    id: int
    tenant_id: int
    shape_id: int = 0
    start_by: datetime = NOW + timedelta(hours=1)
    priority: int = 0
    remaining_path: int = 0
    expected_run_time: timedelta = timedelta(hours=1)

    @property
    def due(self):
        return SHAPES[self.shape_id].queue != Queue.URGENT, self.start_by

    @property
    def own_order(self):
        return *self.due, -self.priority, self.id


@dataclass(frozen=True)
class Case:
    """A fleet of one pool, what tenants hold and held of it, and what waits."""

    cores: int
    memory_mb: int
    tasks: tuple[Task, ...]
    size: int
    weights: dict[int, int] = field(default_factory=dict)
    held: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By tenant: a shape, and how many tasks of it run."""
    held_before: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def offer(self):
        whole = Resources(cpu_milli=1000 * self.cores, memory_mb=self.memory_mb)
        return Offer(node_id=1, incarnation_id=1, name="n", capacity=whole, free=whole)

    def order(self, shapes=SHAPES):
        queues = {id_: shape.queue for id_, shape in shapes.items() if shape.queue}
        return Order(queues, shapes, now=NOW, urgent_slack=timedelta(0))

    def subqueues(self):
        subqueues = {}
        for task in sorted(self.tasks, key=lambda task: task.own_order):
            subqueues.setdefault((task.tenant_id, task.shape_id), []).append(task)
        return subqueues

    def shares(self):
        recent = RecentUse()
        self._pool_shares(recent, self.held_before, NOW.timestamp() - AGO).settle()
        now = self._pool_shares(recent, self.held, NOW.timestamp())
        return Shares(dict.fromkeys(SHAPES, now), SHAPES)

    def _pool_shares(self, recent, held, at):
        pool = Pool(PoolKey(), [self.offer], SHARED_KINDS)
        competing = Competitors({task.tenant_id for task in self.tasks}, self.weights)
        shares = PoolShares(pool, self.weights, competing, recent, at)
        for tenant, (shape, times) in held.items():
            shares.hold_shape(tenant, shape, SHAPES[shape], times)
        return shares


class NoGate:
    """Admits everything."""

    def admit(self, task):
        return True


NO_GATE = NoGate()
TEAM = 9


class Team:
    """The case in which the tenants of another one are the users of a single tenant."""

    def __init__(self, case):
        self._case = case
        self.shapes = {
            self._shape_id(user, shape_id): msgspec.structs.replace(shape, user_id=user)
            for shape_id, shape in SHAPES.items()
            for user in range(1, 10)
        }

    def subqueues(self):
        return {
            (TEAM, self._shape_id(user, shape_id)): [
                replace(task, tenant_id=TEAM, shape_id=self._shape_id(user, shape_id))
                for task in tasks
            ]
            for (user, shape_id), tasks in self._case.subqueues().items()
        }

    def shares(self):
        inner = self._case.shares()
        users = next(iter(inner.pools.values()))
        outer = PoolShares(users.pool, {}, Competitors({TEAM}, {}), RecentUse(), 0.0)
        return Shares(dict.fromkeys(self.shapes, outer), self.shapes, 0.0, {(TEAM, outer): users})

    def _shape_id(self, user, shape_id):
        return 100 * user + shape_id


class Reference:
    """Fills a window task by task, and looks at everything anew for each."""

    def __init__(self, case):
        self._case = case
        self._left = sorted(case.tasks, key=lambda task: task.own_order)
        self._chosen = []

    def window(self):
        while self._left and len(self._chosen) < self._case.size:
            task, is_entitled = self._next()
            self._left.remove(task)
            self._chosen.append((task, is_entitled))
        return self._chosen

    def _next(self):
        heads = {}
        for task in self._left:
            heads.setdefault(task.tenant_id, task)
        if entitled := [task for task in heads.values() if self._is_entitled(task)]:
            return min(entitled, key=lambda task: (task.due, self._use(task.tenant_id))), True
        return min(heads.values(), key=lambda task: (self._use(task.tenant_id), task.due)), False

    def _is_entitled(self, task):
        with_it = [*self._holds(task.tenant_id), (task.shape_id, 1)]
        return self._dominant(with_it) <= self._fair_share(task.tenant_id) + Fraction(1, 10**9)

    def _fair_share(self, tenant):
        competing = {task.tenant_id for task in self._case.tasks}
        others = sum(
            self._dominant([held])
            for other, held in self._case.held.items()
            if other not in competing
        )
        weights = sum(self._weight(other) for other in competing)
        return max(Fraction(0), 1 - others) * self._weight(tenant) / weights

    def _weight(self, tenant):
        return self._case.weights.get(tenant, 1)

    def _holds(self, tenant):
        chosen = [(task.shape_id, 1) for task, _ in self._chosen if task.tenant_id == tenant]
        return [*([self._case.held[tenant]] if tenant in self._case.held else []), *chosen]

    def _dominant(self, holds):
        cores = sum(SHAPES[shape].needs.cpu_milli * times for shape, times in holds)
        memory = sum(SHAPES[shape].needs.memory_mb * times for shape, times in holds)
        return max(Fraction(cores, 1000 * self._case.cores), Fraction(memory, self._case.memory_mb))

    def _use(self, tenant):
        """Return the recent use per weight; what was chosen counts as one second of it."""
        before = self._case.held_before.get(tenant)
        average = 0 if before is None else self._dominant([before]) * (1 - 2 ** (-AGO / 30))
        chosen = sum(
            self._dominant([(task.shape_id, 1)])
            for task, _ in self._chosen
            if task.tenant_id == tenant
        )
        # Rounded, as sums in another order differ in the last digits.
        return round(float(average + chosen * (1 - 2 ** (-1 / 30))) / self._weight(tenant), 9)
