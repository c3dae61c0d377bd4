"""Scheduling rounds: the only file that calls the policies of the servers.

A round here does what a round of the resource manager does, without the database: it counts what
fits, takes the window in the order of turns, and places it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol

from duly.model.queue import Queue
from duly.policy import placement, turns
from duly.policy.placement import Ask
from duly.policy.queueing import Order, rank
from duly.policy.shares import SHARED_KINDS, Pool, PoolShares, RecentUse, contested_kinds
from duly.sim.cluster import Cluster, PoolKey, pool_key
from duly.sim.subqueues import SortKey, SubqueueKey, Waiting
from duly.sim.task import SimTask, instant
from duly.sim.workload import Workload

MAX_HOLD_CANDIDATES = 30
OBSERVATION_INTERVAL = 1.0
"""Recent use is brought up to date this often, in seconds, while nothing starts."""


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

    def window(
        self,
        subqueues: Mapping[SubqueueKey, Sequence[SimTask]],
        size: int,
        order: Order,
        now: float,
    ) -> Sequence[SimTask]:
        """Return the first tasks of the subqueues."""

    def observe(self, unplaced: Sequence[SimTask]) -> None:
        """Take note of the last window, some of which could not be placed."""

    def idle(self, now: float) -> None:
        """Take note that tasks may have ended, and nothing started."""


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
        subqueues = self._subqueues(slots, skipped)
        size = min(self._window_size, sum(slots[shape_id] for _, shape_id in subqueues))
        candidates = self._hold_candidates(slots, skipped, order)
        size += len(candidates)
        window = self._policy.window(subqueues | candidates, size, order, now)
        asked = [*held, *[(task, self._ask(task, order)) for task in window]]
        placements = self._place([ask for _, ask in asked], slots, now)
        placed = {each.task: each.incarnation for each in placements}
        starts = [Start(task, placed[task.id]) for task, _ in asked if task.id in placed]
        unplaced = [entry for entry in asked if entry[0].id not in placed]
        self._policy.observe([task for task in window if task.id not in placed])
        waiting = sum(self._waiting.counts[shape_id] for shape_id in slots) + len(candidates)
        return Round(starts, unplaced, is_truncated=len(window) == size < waiting)

    def _count_slots(self) -> dict[int, int]:
        """Return how many tasks of each waiting shape fit now, up to a window; none with 0."""
        most = self._window_size
        slots = {}
        for shape_id, count in self._waiting.counts.items():
            if fitting := self._cluster.slots(self._shapes[shape_id], min(count, most)):
                slots[shape_id] = fitting
        return slots

    def _subqueues(
        self, slots: Mapping[int, int], skipped: Set[SubqueueKey]
    ) -> dict[SubqueueKey, Sequence[SimTask]]:
        by_shape = self._waiting.by_shape
        return {
            (tenant_id, shape_id): subqueue.first(count)
            for shape_id, count in slots.items()
            for tenant_id, subqueue in by_shape[shape_id].items()
            if (tenant_id, shape_id) not in skipped
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

    def _ask(self, task: SimTask, order: Order) -> Ask:
        shape_id = task.shape_id
        return Ask(
            task.id,
            shape_id,
            self._shapes[shape_id],
            task.avoid_node_id,
            task.execution_cap,
            order.qualifies_for_hold(task),
        )

    def _place(
        self, asks: Sequence[Ask], slots: Mapping[int, int], now: float
    ) -> Sequence[placement.Placement]:
        wanted = Counter(ask.shape_id for ask in asks)
        all_fit = len(wanted) == 1 and len(asks) <= min(slots.get(shape, 0) for shape in wanted)
        if all_fit or not any(ask.may_hold for ask in asks):
            placements = placement.place(asks, self._cluster.offers(wanted)) if asks else []
            if len(placements) == len(asks):
                return placements
        return placement.place(asks, self._cluster.all_offers(now))


class FairTurns:
    """Duly's own policy: fair shares by weight, urgency within them (`policy/turns.py`)."""

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
        self._has_extra_kinds = any(
            amount > 0 and kind not in SHARED_KINDS
            for shape in self._shapes.values()
            for kind, amount in shape.needs.items()
        )
        self._observed_at = 0.0
        self._shares: dict[PoolKey, PoolShares] = {}
        """Of the last window."""

    def order(self, waiting: Set[int], now: datetime) -> Order:
        """Return the order of queues in a round; `waiting` are the shapes that have tasks."""
        queues = {shape: self._queues[shape] for shape in self._queues.keys() & waiting}
        has_off_peak = Queue.OFF_PEAK in queues.values()
        return Order(
            queues,
            self._shapes,
            [self._cluster.fleet_offer] if has_off_peak else (),
            now=now,
            urgent_slack=self._workload.scheduling.urgent_slack,
            peak_percent=self._workload.scheduling.peak_percent,
        )

    def window(
        self,
        subqueues: Mapping[SubqueueKey, Sequence[SimTask]],
        size: int,
        order: Order,
        now: float,
    ) -> Sequence[SimTask]:
        """Return the first tasks by turns, charged to their tenants."""
        self._shares = {}
        by_shape: dict[int, PoolShares] = {}
        for _, shape_id in subqueues:
            if shape_id not in by_shape:
                by_shape[shape_id] = self._pool_shares(self._pool_of[shape_id], order, now)
        shares = turns.Shares(by_shape, self._shapes)
        return [turn.task for turn in turns.take(subqueues, size, order, shares, order.gate())]

    def observe(self, unplaced: Sequence[SimTask]) -> None:
        """Take what tenants hold after the round into their recent use."""
        for task in unplaced:
            shares = self._shares[self._pool_of[task.shape_id]]
            shares.hold_shape(task.tenant_id, task.shape_id, self._shapes[task.shape_id], -1)
        for shares in self._shares.values():
            shares.observe()

    def idle(self, now: float) -> None:
        """Take into account that tasks have ended while nothing could start."""
        if now >= self._observed_at + OBSERVATION_INTERVAL:
            self._observed_at = now
            for key in self._recent:
                self._divide(key, (), now).observe()

    def _pool_shares(self, key: PoolKey, order: Order, now: float) -> PoolShares:
        if (shares := self._shares.get(key)) is None:
            self._observed_at = now
            shares = self._shares[key] = self._divide(key, self._competing(key, order), now)
        return shares

    def _divide(self, key: PoolKey, competing: Collection[int], now: float) -> PoolShares:
        """Return the shares of a pool, with what tenants hold there now."""
        recent = self._recent.setdefault(key, RecentUse())
        shares = PoolShares(self._pool(key), self._workload.weights, competing, recent, now)
        for (tenant_id, shape_id), count in self._cluster.running[key].items():
            shares.hold_shape(tenant_id, shape_id, self._shapes[shape_id], count)
        return shares

    def _competing(self, key: PoolKey, order: Order) -> Set[int]:
        """Return the tenants with tasks that may start in a pool."""
        backlogged = self._waiting.backlog[key].keys()
        off_peak = {
            tenant_id
            for shape_id, queue in self._queues.items()
            if queue is Queue.OFF_PEAK and self._pool_of[shape_id] == key
            for tenant_id, subqueue in self._waiting.by_shape.get(shape_id, {}).items()
            for head in subqueue.first(1)
            if order.precedence(shape_id, head.start_by) is not None
        }
        return backlogged | off_peak if off_peak else backlogged

    def _pool(self, key: PoolKey) -> Pool:
        if self._pools_revision != self._cluster.revision:
            self._pools_revision = self._cluster.revision
            self._pools = {}
        kinds = self._kinds()
        if (pool := self._pools.get((key, kinds))) is None:
            pool = Pool(dict(key), self._cluster.all_offers(0.0), kinds)
            self._pools[key, kinds] = pool
        return pool

    def _kinds(self) -> tuple[str, ...]:
        """Return the kinds of resources that count, by what waits and what runs."""
        if not self._has_extra_kinds:
            return SHARED_KINDS
        keys = {
            (tenant_id, shape_id)
            for shape_id, subqueues in self._waiting.by_shape.items()
            for tenant_id in subqueues
        }.union(*self._cluster.running.values())
        return contested_kinds((tenant_id, self._shapes[shape_id]) for tenant_id, shape_id in keys)
