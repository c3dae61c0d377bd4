"""Scheduling rounds: the only file that calls the policies of the servers.

A round here does what a round of the resource manager does, without the database: it counts what
fits, takes the window in the order of turns, and places it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple, Protocol

from duly.model.queues.peak import NO_PEAK
from duly.model.resources import Resources
from duly.policy import placement, queueing
from duly.policy.budget.headroom import NO_HEADROOM, SLOT
from duly.policy.budget.peak import Load, Postponement, next_peak
from duly.policy.fairness import turns
from duly.policy.fairness.recent_use import RecentUse
from duly.policy.fairness.shares import (
    SHARED_KINDS,
    Competitors,
    Pool,
    PoolKey,
    PoolShares,
    competing_for,
    contested_kinds,
    has_special_kinds,
    pool_key,
)
from duly.policy.fairness.turns import Shares, Turn
from duly.policy.placement import Ask
from duly.policy.queueing import Order, rank
from duly.sim.cluster import Cluster
from duly.sim.subqueues import SortKey, SubqueueKey, Waiting
from duly.sim.task import SimTask, instant
from duly.sim.workloads.workload import Workload

MAX_HOLD_CANDIDATES = 30


class Start(NamedTuple):
    """A task, and the node that it starts on."""

    task: SimTask
    node_id: int


class Round(NamedTuple):
    """What a round decided."""

    starts: list[Start]
    unplaced: list[tuple[SimTask, Ask]]
    is_truncated: bool
    """Whether the window was full: tasks behind it may fit as well."""


class TurnPolicy(Protocol):
    """Decides which tasks come into the window, and in which order."""

    key: SortKey
    """The order of tasks within a subqueue."""

    def order(self, waiting: Set[int], now: datetime) -> Order:
        """Return the order of queues in a round; `waiting` are the shapes that have tasks."""

    def headroom(self) -> Mapping[int, Resources]:
        """Return what nodes keep for urgent tasks in this round."""

    def window(
        self,
        subqueues: Mapping[SubqueueKey, Sequence[SimTask]],
        size: int,
        order: Order,
        now: float,
    ) -> Sequence[Turn[SimTask]]:
        """Return the first tasks of the subqueues."""

    def settle(self, chosen: int, started: Sequence[Start]) -> None:
        """Take note of what has started of the tasks that were chosen."""


class Scheduler:
    """Decides what starts where."""

    def __init__(
        self, workload: Workload, cluster: Cluster, waiting: Waiting, policy: TurnPolicy
    ) -> None:
        self._shapes = workload.shapes
        self._window_size = workload.scheduling.window
        self._cluster = cluster
        self._waiting = waiting
        self._policy = policy

    def round(
        self, now: float, held: Sequence[tuple[SimTask, Ask]], skipped: Set[SubqueueKey]
    ) -> Round | None:
        """Decide on one window; None if nothing that waits fits now.

        `held` are asks of earlier windows of this instant for which room is kept, and `skipped`
        the subqueues that could not be placed.
        """
        slots = self._count_slots()
        if not slots:
            return None
        order = self._policy.order(self._waiting.counts.keys(), instant(now))
        headroom = self._policy.headroom()
        exempt: Set[int] = frozenset()
        if headroom:
            slots, exempt = self._without_headroom(slots, headroom, order)
        subqueues = self._subqueues(slots, skipped, order)
        if not subqueues:
            return Round([], [], is_truncated=False)
        candidates = self._hold_candidates(slots, skipped, order)
        size = min(self._window_size, sum(slots[shape_id] for _, shape_id in subqueues))
        size += len(candidates)
        window = self._policy.window(subqueues | candidates, size, order, now)
        asked = [*held, *self._asks(window, order, exempt)]
        placements = self._place([ask for _, ask in asked], slots, now, headroom)
        placed = {each.task: each.incarnation for each in placements}
        starts = [Start(task, placed[task.id]) for task, _ in asked if task.id in placed]
        unplaced = [entry for entry in asked if entry[0].id not in placed]
        self._policy.settle(len(window), starts)
        shapes = {shape_id for _, shape_id in subqueues}
        waiting = sum(self._waiting.counts[shape_id] for shape_id in shapes) + len(candidates)
        return Round(starts, unplaced, is_truncated=len(window) == size < waiting)

    def _count_slots(self) -> dict[int, int]:
        """Return how many tasks of each waiting shape fit now, up to a window; none with 0."""
        most = self._window_size
        slots = {}
        for shape_id, count in self._waiting.counts.items():
            if fitting := self._cluster.slots(self._shapes[shape_id], min(count, most)):
                slots[shape_id] = fitting
        return slots

    def _without_headroom(
        self, slots: Mapping[int, int], headroom: Mapping[int, Resources], order: Order
    ) -> tuple[dict[int, int], Set[int]]:
        """Return the slots that shapes may use, and which shapes may use the headroom anyway."""
        usable, exempt = {}, set()
        for shape_id, real in slots.items():
            shape = self._shapes[shape_id]
            count = self._cluster.slots_beside(headroom, shape, real)
            if count < real:
                if not count and not self._cluster.could_fit_beside(headroom, shape):
                    exempt.add(shape_id)
                    count = real
                elif self._has_urgent(shape_id, order):
                    count = real
            if count:
                usable[shape_id] = count
        return usable, exempt

    def _has_urgent(self, shape_id: int, order: Order) -> bool:
        return any(
            order.is_urgent(shape_id, head.start_by)
            for subqueue in self._waiting.by_shape[shape_id].values()
            for head in subqueue.first(1)
        )

    def _subqueues(
        self, slots: Mapping[int, int], skipped: Set[SubqueueKey], order: Order
    ) -> dict[SubqueueKey, Sequence[SimTask]]:
        """Return the first tasks of each subqueue that fit, unless they are postponed."""
        by_shape, may_be_postponed = self._waiting.by_shape, order.is_peak
        return {
            (tenant_id, shape_id): first
            for shape_id, count in slots.items()
            for tenant_id, subqueue in by_shape[shape_id].items()
            if (tenant_id, shape_id) not in skipped
            for first in [subqueue.first(count)]
            if not may_be_postponed or order.precedence(shape_id, first[0].start_by) is not None
        }

    def _hold_candidates(
        self, slots: Mapping[int, int], skipped: Set[SubqueueKey], order: Order
    ) -> dict[SubqueueKey, Sequence[SimTask]]:
        """Return the first task of each tenant that fits later and for which room may be held."""
        found = [
            ((tenant_id, shape_id), head)
            for shape_id, subqueues in self._waiting.by_shape.items()
            if shape_id not in slots
            for tenant_id, subqueue in subqueues.items()
            if (tenant_id, shape_id) not in skipped
            for head in subqueue.first(1)
            if order.qualifies_for_hold(head)
        ]
        if len(found) > 1:
            found.sort(key=lambda entry: order.key(entry[1]))
        first_of_tenant: dict[int, tuple[SubqueueKey, SimTask]] = {}
        for key, head in found:
            first_of_tenant.setdefault(key[0], (key, head))
        first = islice(first_of_tenant.values(), MAX_HOLD_CANDIDATES)
        return {key: (head,) for key, head in first}

    def _asks(
        self, window: Sequence[Turn[SimTask]], order: Order, exempt: Set[int]
    ) -> Iterator[tuple[SimTask, Ask]]:
        """Yield what to place; a hold is for entitled tasks, or the tenant lowest in recent use."""
        lowest = next((turn.task.tenant_id for turn in window if not turn.is_entitled), None)
        shapes, qualifies = self._shapes, order.qualifies_for_hold
        for task, is_entitled in window:
            shape_id, tenant_id = task.shape_id, task.tenant_id
            may_hold = (is_entitled or tenant_id == lowest) and qualifies(task)
            avoid, bound = task.avoid_node_id, task.run_time_bound
            is_urgent = is_entitled and order.is_urgent(shape_id, task.start_by)
            yield (
                task,
                Ask(
                    task.id,
                    shape_id,
                    shapes[shape_id],
                    avoid,
                    bound,
                    may_hold,
                    tenant_id,
                    is_urgent or shape_id in exempt,
                ),
            )

    def _place(
        self,
        asks: Sequence[Ask],
        slots: Mapping[int, int],
        now: float,
        headroom: Mapping[int, Resources],
    ) -> Sequence[placement.Placement]:
        wanted = Counter(ask.shape_id for ask in asks)
        all_fit = len(wanted) == 1 and len(asks) <= min(slots.get(shape, 0) for shape in wanted)
        if all_fit or not any(ask.may_hold for ask in asks):
            offers = self._cluster.offers(wanted, headroom.keys()) if asks else []
            placements = placement.place(asks, offers, headroom)
            if len(placements) == len(asks):
                return placements
        return placement.place(asks, self._cluster.all_offers(now), headroom)


class FairTurns:
    """Duly's own policy: fair shares by weight, then urgency (`policy/fairness/turns.py`)."""

    key: SortKey = staticmethod(rank)

    def __init__(self, workload: Workload, cluster: Cluster, waiting: Waiting) -> None:
        self._workload = workload
        self._cluster = cluster
        self._waiting = waiting
        self._shapes = workload.shapes
        self._queues = {id_: shape.queue for id_, shape in self._shapes.items() if shape.queue}
        self._pool_of = {id_: pool_key(shape) for id_, shape in self._shapes.items()}
        self._recent: dict[PoolKey, RecentUse] = {}
        self._pools: dict[tuple[PoolKey, tuple[str, ...]], Pool] = {}
        self._pools_revision = -1
        self._has_special_kinds = any(map(has_special_kinds, self._shapes.values()))
        self.peak = NO_PEAK
        self._shares: Shares | None = None
        """Of the last window; None if only one tenant had tasks."""

    def order(self, waiting: Set[int], now: datetime) -> Order:
        """Return the order of queues in a round; `waiting` are the shapes that have tasks."""
        scheduling = self._workload.scheduling
        load = Load([self._cluster.fleet_offer])
        self.peak = next_peak(self.peak, load, scheduling, now)
        return Order(
            {shape: self._queues[shape] for shape in self._queues.keys() & waiting},
            self._shapes,
            now=now,
            urgent_slack=scheduling.urgent_slack,
            postponement=Postponement(self.peak, load, scheduling, now),
        )

    def headroom(self) -> Mapping[int, Resources]:
        """Return what nodes keep for urgent tasks in this round."""
        if self.peak.since_for(SLOT) is None:
            return NO_HEADROOM
        return self._cluster.headroom(self._workload.scheduling.urgent_headroom)

    def window(
        self,
        subqueues: Mapping[SubqueueKey, Sequence[SimTask]],
        size: int,
        order: Order,
        now: float,
    ) -> Sequence[Turn[SimTask]]:
        """Return the first tasks by turns, charged to their tenants."""
        if self._waiting.has_one_tenant:
            self._shares = None
            tasks = chain.from_iterable(subqueues.values())
            return [Turn(task, True) for task in queueing.window(tasks, size, order)]
        pools: dict[PoolKey, PoolShares] = {}
        by_shape: dict[int, PoolShares] = {}
        for _, shape_id in subqueues:
            if shape_id not in by_shape:
                key = self._pool_of[shape_id]
                if key not in pools:
                    pools[key] = self._pool_shares(key, order, now)
                by_shape[shape_id] = pools[key]
        self._shares = Shares(by_shape, self._shapes, now)
        return turns.take(subqueues, size, order, self._shares, order.gate())

    def settle(self, chosen: int, started: Sequence[Start]) -> None:
        """Take what tenants hold after the round into their recent use."""
        if (shares := self._shares) is None:
            return
        if len(started) < chosen:
            shares.reset()
            for task, _ in started:
                shares.charge((task.tenant_id, task.shape_id))
        shares.settle()

    def _pool_shares(self, key: PoolKey, order: Order, now: float) -> PoolShares:
        """Return the shares of a pool, with what tenants hold there now."""
        weights = self._workload.weights
        recent = self._recent.setdefault(key, RecentUse())
        competing = Competitors(self._competing(key, order), weights)
        shares = PoolShares(self._pool(key), weights, competing, recent, now)
        for (tenant_id, shape_id), count in self._cluster.running[key].items():
            shares.hold_shape(tenant_id, shape_id, self._shapes[shape_id], count)
        return shares

    def _competing(self, key: PoolKey, order: Order) -> Set[int]:
        """Return the tenants with tasks that may start on a node of a pool."""
        keys = self._waiting.backlog.keys()
        if len(keys) == 1:
            return self._with_tasks_for(key, order)
        pools = {other: self._pool(other) for other in keys}
        tenants = {other: self._with_tasks_for(other, order) for other in keys}
        return competing_for(key, pools, tenants)

    def _with_tasks_for(self, key: PoolKey, order: Order) -> Set[int]:
        """Return the tenants with tasks for exactly this pool that may start."""
        if not self._waiting.may_be_postponed:
            return self._waiting.backlog[key].keys()
        return {
            tenant_id
            for shape_id, subqueues in self._waiting.by_shape.items()
            if self._pool_of[shape_id] == key
            for tenant_id, subqueue in subqueues.items()
            for head in subqueue.first(1)
            if order.precedence(shape_id, head.start_by) is not None
        }

    def _pool(self, key: PoolKey) -> Pool:
        if self._pools_revision != self._cluster.revision:
            self._pools_revision = self._cluster.revision
            self._pools = {}
        kinds = self._kinds()
        if (pool := self._pools.get((key, kinds))) is None:
            pool = Pool(key, self._cluster.all_offers(0.0), kinds)
            self._pools[key, kinds] = pool
        return pool

    def _kinds(self) -> tuple[str, ...]:
        """Return the kinds of resources that count, by what waits and what runs."""
        if not self._has_special_kinds:
            return SHARED_KINDS
        keys = {
            (tenant_id, shape_id)
            for shape_id, subqueues in self._waiting.by_shape.items()
            for tenant_id in subqueues
        }.union(*self._cluster.running.values())
        return contested_kinds((tenant_id, self._shapes[shape_id]) for tenant_id, shape_id in keys)
