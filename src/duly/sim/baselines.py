"""Well-known policies to compare with: they see neither tenants nor queues."""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any

from duly.model.resources import Resources
from duly.policy.budget.headroom import NO_HEADROOM
from duly.policy.fairness.turns import Turn
from duly.policy.queueing import Order
from duly.sim.subqueues import SortKey, SubqueueKey
from duly.sim.task import SimTask
from duly.sim.workloads.workload import Workload


def arrival(task: SimTask) -> tuple[Any, ...]:
    """First come, first served."""
    return task.arrived, task.id


def run_time(task: SimTask) -> tuple[Any, ...]:
    """Shortest first, by the true run time, which no real scheduler knows."""
    return task.run_time, task.id


def deadline(task: SimTask) -> tuple[Any, ...]:
    """Earliest start_by first."""
    return task.start_by, task.id


BASELINES: Mapping[str, Callable[[SimTask], tuple[Any, ...]]] = {
    "fifo": arrival,
    "sjf": run_time,
    "edf": deadline,
}


class GlobalOrder:
    """One order over the tasks of all tenants."""

    def __init__(self, key: SortKey, workload: Workload) -> None:
        self.key = key
        self._shapes = workload.shapes

    def order(self, waiting: Set[int], now: datetime) -> Order:
        """Return an order without queues: holds depend on it."""
        return Order({}, self._shapes, now=now, urgent_slack=timedelta(0))

    def headroom(self) -> Mapping[int, Resources]:
        """Keep none."""
        return NO_HEADROOM

    def window(
        self,
        subqueues: Mapping[SubqueueKey, Sequence[SimTask]],
        size: int,
        order: Order,
        now: float,
    ) -> Sequence[Turn[SimTask]]:
        """Return the first tasks of all subqueues."""
        tasks = islice(merge(*subqueues.values(), key=self.key), size)
        return [Turn(task, is_entitled=True) for task in tasks]

    def settle(self, chosen: int, started: Sequence[object]) -> None:
        """Remember nothing."""
