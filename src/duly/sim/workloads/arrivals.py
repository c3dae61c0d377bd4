"""Generates the tasks that tenants submit.

Every stream has dice of its own, seeded by its name: another policy, another fleet or one more
tenant changes nothing about the tasks of the others, so that results can be compared.
"""

from collections.abc import Iterator, Sequence
from math import cos, inf, pi
from random import Random

from duly.sim.task import SimTask, second
from duly.sim.workloads.workload import DAY, Stream, TaskClass, TenantLoad

CHUNKS = 48
"""Tasks are generated and sorted in so many parts, to bound memory."""


class StreamArrivals:
    """The tasks of all streams of all tenants."""

    def __init__(
        self,
        tenants: Sequence[TenantLoad],
        classes: Sequence[TaskClass],
        shape_ids: Sequence[int],
        duration: float,
    ) -> None:
        """Generate tasks for `duration` seconds; `shape_ids` are those of the classes."""
        self._tenants = tenants
        self._classes = classes
        self._shape_ids = shape_ids
        self._duration = duration

    has_names = True
    """Whether the class of a task is known when it arrives."""

    @property
    def total(self) -> int | None:
        """Return nothing: rates are random."""
        return None

    def tasks(self, seed: int) -> Iterator[SimTask]:
        """Yield tasks by their time of arrival."""
        sources = [
            (
                tenant_id,
                stream,
                _times(stream, self._duration, _dice(seed, tenant, number, "times")),
                _dice(seed, tenant, number, "runs"),
            )
            for tenant_id, tenant in enumerate(self._tenants)
            for number, stream in enumerate(tenant.streams)
        ]
        pending = [next(times, inf) for _, _, times, _ in sources]
        id_ = 0
        for chunk in range(1, CHUNKS + 1):
            until = self._duration * chunk / CHUNKS if chunk < CHUNKS else inf
            arrived: list[SimTask] = []
            for index, (tenant_id, stream, times, runs) in enumerate(sources):
                at = pending[index]
                task_class = self._classes[stream.class_id]
                shape_id = self._shape_ids[stream.class_id]
                draw = task_class.run_time.draw
                tolerance, cap = task_class.delay_tolerance, task_class.execution_cap
                slack, priority = tolerance.total_seconds(), task_class.priority
                while at < until:
                    arrived.append(
                        SimTask(
                            0, tenant_id, shape_id, stream.class_id, at, draw(runs),
                            second(int(at + slack)), tolerance, cap, priority,
                        )
                    )  # fmt: skip
                    at = next(times, inf)
                pending[index] = at
            arrived.sort(key=_arrived)
            for task in arrived:
                id_ += 1
                task.id = id_
                yield task


def _arrived(task: SimTask) -> float:
    return task.arrived


def _dice(seed: int, tenant: TenantLoad, number: int, what: str) -> Random:
    return Random(f"{seed}/{tenant.name}/{number}/{what}")  # noqa: S311 # not for secrets


def _times(stream: Stream, duration: float, rng: Random) -> Iterator[float]:
    """Yield the times of arrival: a burst, then a Poisson process by thinning."""
    start, end = stream.starts_at, min(duration, stream.ends_at or duration)
    for _ in range(stream.burst):
        yield start
    if not stream.rate:
        return
    amplitude = stream.peak_factor - 1
    highest = stream.rate * stream.peak_factor
    at = start
    while (at := at + rng.expovariate(highest)) < end:
        if amplitude:
            rate = 1 + amplitude * cos(2 * pi * (at - stream.peak_at) / DAY)
            if rng.random() * stream.peak_factor > rate:
                continue
        yield at
