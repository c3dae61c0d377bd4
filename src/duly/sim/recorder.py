"""Records what happens in a simulation: waits, and what tenants use over time."""

from array import array
from collections.abc import Iterator

from duly.sim.task import SimTask
from duly.sim.workloads.workload import Workload

MIN_INTERVAL = 1.0
MAX_INTERVAL = 60.0
USUAL_INTERVALS = 240
MAX_INTERVALS = 2000
SLOWDOWN_BOUND = 10.0
"""Seconds: a task that ran for less is taken to have run so long, as is usual for the bounded
slowdown; a task of 10 ms that waits for 1 s is not a hundred times worse off."""
TOLERANCE_ROUNDING = 1e-6


class Recorder:
    """The history of a simulation, by class, tenant and time."""

    def __init__(self, workload: Workload) -> None:
        duration = workload.duration
        usual = min(MAX_INTERVAL, max(MIN_INTERVAL, duration / USUAL_INTERVALS))
        self.interval_count = max(1, round(duration / max(usual, duration / MAX_INTERVALS)))
        self.interval = duration / self.interval_count
        """The length of the intervals that use is summed over, in seconds."""
        self.arrived: dict[tuple[int, int], array[float]] = {}
        self.waits: dict[tuple[int, int], array[float]] = {}
        """By class and tenant, in seconds from arrival to the start of the first attempt."""
        self.used: dict[tuple[int, int], dict[int, float]] = {}
        """By tenant and shape: task-seconds in each interval with any."""
        self.ended = 0
        self.failed = 0
        self.attempts_lost = 0
        self.missed_tolerances = 0
        self.last_end = 0.0
        self._slowdown = 0.0
        self._parts: dict[int, tuple[int, float]] = {}

    @property
    def mean_bounded_slowdown(self) -> float:
        """Return by which factor waiting lengthened tasks, on average."""
        return self._slowdown / self.ended if self.ended else 1.0

    def record_attempt(self, task: SimTask, started: float, ended: float) -> None:
        """Count what an attempt used."""
        if (used := self.used.get((task.tenant_id, task.shape_id))) is None:
            used = self.used[task.tenant_id, task.shape_id] = {}
        number = int(started / self.interval)
        until = (number + 1) * self.interval
        while until < ended and number < self.interval_count:
            used[number] = used.get(number, 0.0) + until - started
            started, until = until, until + self.interval
            number += 1
        if number < self.interval_count:
            used[number] = used.get(number, 0.0) + ended - started

    def record_end(self, task: SimTask, now: float, *, has_failed: bool = False) -> None:
        """Count a task that has ended."""
        started = task.started
        if task.parts > 1:
            parts, latest = self._parts.pop(task.job, (0, started))
            started = max(started, latest)
            if parts + 1 < task.parts:
                self._parts[task.job] = parts + 1, started
                return
        arrived = task.arrived
        wait = started - arrived
        key = task.class_id, task.tenant_id
        if (waits := self.waits.get(key)) is None:
            waits = self.waits[key] = array("d")
            self.arrived[key] = array("d")
        waits.append(wait)
        self.arrived[key].append(arrived)
        self.ended += 1
        self.failed += has_failed
        self.last_end = now
        run = task.run_time
        if run < SLOWDOWN_BOUND:
            run = SLOWDOWN_BOUND
        slowdown = (now - arrived) / run
        self._slowdown += slowdown if slowdown > 1.0 else 1.0
        if wait > task.delay_tolerance.total_seconds() + TOLERANCE_ROUNDING:
            self.missed_tolerances += 1

    def waits_of_classes(self) -> Iterator[tuple[int, list[float]]]:
        """Yield each class with the waits of its tasks."""
        for class_id in sorted({class_id for class_id, _ in self.waits}):
            yield (
                class_id,
                _join(waits for (each, _), waits in self.waits.items() if each == class_id),
            )

    def waits_of_tenants(self) -> Iterator[tuple[int, list[float]]]:
        """Yield each tenant with the waits of its tasks."""
        by_tenant: dict[int, list[float]] = {}
        for (_, tenant_id), waits in self.waits.items():
            by_tenant.setdefault(tenant_id, []).extend(waits)
        yield from sorted(by_tenant.items())


def _join(arrays: "Iterator[array[float]]") -> list[float]:
    return [value for each in arrays for value in each]
