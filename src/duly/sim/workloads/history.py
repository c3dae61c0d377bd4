"""Makes a workload of tasks that an installation has run, and of its nodes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from duly.errors import ConfigError
from duly.model.node import NodeProfile
from duly.model.shape import Shape
from duly.policy import placement
from duly.sim.task import SimTask, instant
from duly.sim.workloads.fleet_options import FleetOptions
from duly.sim.workloads.run_time_classes import RUN_TIME_CLASSES, class_of
from duly.sim.workloads.workload import NodeGroup, Workload, intern_shapes


class PastTask(NamedTuple):
    """A task that has run."""

    tenant: str
    arrived: float
    """When it could start, in seconds since 1970."""
    run_time: float
    """Of its last attempt, in seconds."""
    shape: Shape
    delay_tolerance: timedelta
    execution_cap: timedelta
    priority: int = 0


class PastArrivals:
    """The tasks of the past, by their time of arrival; a seed changes nothing."""

    def __init__(
        self,
        tasks: Sequence[PastTask],
        began: float,
        scale_load: float,
        tenant_ids: Mapping[str, int],
        shape_ids: Sequence[int],
    ) -> None:
        """Let `tasks` of these shapes arrive; a higher load is the same tasks in less time."""
        self._tasks = tasks
        self._began = began
        self._scale_load = scale_load
        self._tenant_ids = tenant_ids
        self._shape_ids = shape_ids

    has_names = False
    """The class of a task follows from its true run time, which no server could know."""

    @property
    def total(self) -> int | None:
        """Return the number of tasks."""
        return len(self._tasks)

    def tasks(self, seed: int) -> Iterator[SimTask]:
        """Yield tasks by their time of arrival."""
        for number, (task, shape_id) in enumerate(
            zip(self._tasks, self._shape_ids, strict=True), 1
        ):
            arrived = (task.arrived - self._began) / self._scale_load
            yield SimTask(
                number,
                self._tenant_ids[task.tenant],
                shape_id,
                class_of(task.run_time),
                arrived,
                task.run_time,
                instant(arrived) + task.delay_tolerance,
                task.delay_tolerance,
                task.execution_cap,
                task.priority,
            )


def make_workload(
    name: str,
    tasks: Sequence[PastTask],
    groups: Sequence[NodeGroup],
    weights: Mapping[str, int],
    options: FleetOptions,
) -> Workload:
    """Return the workload of past `tasks` on `groups` of nodes, changed by `options`."""
    if not groups:
        raise ConfigError("There is no node to simulate. Start one with 'duly agent'.")
    nodes = options.apply(groups)
    profiles = [NodeProfile(group.capacity, group.labels) for group in nodes]
    shapes, shape_ids = intern_shapes([task.shape for task in tasks])
    fits = {id_: placement.could_ever_fit(shape, profiles) for id_, shape in shapes.items()}
    fitting = sorted(
        ((task, id_) for task, id_ in zip(tasks, shape_ids, strict=True) if fits[id_]),
        key=lambda item: item[0].arrived,
    )
    if not fitting:
        raise ConfigError("No task has run in this time that would fit on one of the nodes.")
    past, past_shape_ids = zip(*fitting, strict=True)
    tenants = sorted({task.tenant for task in past})
    began = past[0].arrived
    return Workload(
        name=name,
        duration=(past[-1].arrived - began) / options.scale_load + 1.0,
        nodes=nodes,
        tenants=tuple(tenants),
        weights={id_: weights[name] for id_, name in enumerate(tenants) if name in weights},
        classes=tuple(RUN_TIME_CLASSES),
        shapes={id_: shape for id_, shape in shapes.items() if fits[id_]},
        arrivals=PastArrivals(
            past,
            began,
            options.scale_load,
            {tenant: id_ for id_, tenant in enumerate(tenants)},
            past_shape_ids,
        ),
        notes=(*options.notes, *_notes(len(tasks) - len(past))),
    )


def _notes(left_out: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out:,} tasks fit on none of the nodes and were left out."
    yield (
        "Each task runs as long as its last attempt did, and arrives when it could start. Settings "
        "are the defaults."
    )
