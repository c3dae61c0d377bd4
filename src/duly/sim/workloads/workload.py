"""Workloads: the fleet, the tenants, and the tasks that arrive."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from duly.config import LeaseSettings, RetrySettings, SchedulingSettings
from duly.model.queues.queue import Queue
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.sim.task import SimTask
from duly.sim.workloads.distributions import RunTime

DAY = 86_400.0


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one kind."""

    count: int
    capacity: Resources
    labels: dict[str, str] = {}
    mean_time_between_failures: float | None = None
    """Of each node, in seconds; None: they never fail."""
    repair_time: float = 600.0


class TaskClass(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that have all in common but their tenant and run time."""

    name: str
    needs: Resources
    run_time: RunTime
    requires: dict[str, str] = {}
    queue: Queue | None = None
    delay_tolerance: timedelta = timedelta(minutes=5)
    execution_cap: timedelta = timedelta(hours=24)
    priority: int = 0
    max_attempts: int = 3

    @property
    def shape(self) -> Shape:
        """Return what placement looks at."""
        return Shape(self.needs, self.requires, queue=self.queue)


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one class that a tenant submits: at a rate that follows the day, or in a burst."""

    class_id: int
    rate: float = 0.0
    """Mean tasks per second; arrivals are a Poisson process."""
    peak_factor: float = 1.0
    """The rate at the peak of the day, as a multiple of the mean."""
    peak_at: float = 14 * 3600.0
    """Seconds after midnight."""
    burst: int = 0
    """Tasks that arrive all at once."""
    starts_at: float = 0.0
    ends_at: float | None = None


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, its weight and what it submits."""

    name: str
    weight: int = 1
    streams: tuple[Stream, ...] = ()


class Arrivals(Protocol):
    """Where tasks come from."""

    has_names: bool
    """Whether a class stands for the name of tasks, by which servers learn run times."""

    @property
    def total(self) -> int | None:
        """Return the number of tasks, if it is known beforehand."""

    def tasks(self, seed: int) -> Iterator[SimTask]:
        """Yield tasks by their time of arrival."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a simulation depends on, but for the policy and the seed."""

    name: str
    duration: float
    """How long tasks arrive, in seconds; shares and utilisation are measured over this time."""
    nodes: tuple[NodeGroup, ...]
    tenants: tuple[str, ...]
    weights: dict[int, int]
    classes: tuple[str, ...]
    shapes: dict[int, Shape]
    arrivals: Arrivals
    max_attempts: tuple[int, ...] = ()
    """By class; three if there is none."""
    scheduling: SchedulingSettings = SchedulingSettings()
    leases: LeaseSettings = LeaseSettings()
    retries: RetrySettings = RetrySettings()
    round_interval: float = 0.02
    """The shortest time between two scheduling rounds, because a round takes some time."""
    scale: int = 1
    """Arrivals and nodes were divided by this."""
    notes: tuple[str, ...] = ()
    """What a reader of the report must know about how the workload was made."""

    @property
    def node_count(self) -> int:
        """Return the number of nodes."""
        return sum(group.count for group in self.nodes)


def with_node_count(groups: Sequence[NodeGroup], count: int) -> tuple[NodeGroup, ...]:
    """Return the groups with `count` nodes in all, in their proportions (largest remainder)."""
    total = sum(group.count for group in groups)
    exact = [group.count * count / total for group in groups]
    counts = [int(each) for each in exact]
    by_remainder = sorted(range(len(groups)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return tuple(
        msgspec.structs.replace(group, count=each)
        for group, each in zip(groups, counts, strict=True)
        if each
    )


def intern_shapes(shapes: Iterable[Shape]) -> tuple[dict[int, Shape], list[int]]:
    """Return the different shapes by id, and the id of each."""
    known: dict[int, Shape] = {}
    ids_by_key: dict[bytes, int] = {}
    ids = []
    for shape in shapes:
        key = msgspec.json.encode(shape, order="deterministic")
        id_ = ids_by_key.setdefault(key, len(ids_by_key) + 1)
        known[id_] = shape
        ids.append(id_)
    return known, ids
