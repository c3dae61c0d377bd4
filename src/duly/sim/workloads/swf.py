"""Reads traces of real systems in the Standard Workload Format (SWF).

One job per line, 18 columns; `;` begins a comment or, at the top, a header field. -1 is unknown.
Each job becomes a task: its user is the tenant, its processors are cores. A job with more
processors than a node has runs as several tasks, and has started when the last of them has.
"""

import gzip
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, NamedTuple

from duly.errors import ConfigError
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.sim.task import SimTask, second
from duly.sim.workloads.fleet_options import FleetOptions
from duly.sim.workloads.run_time_classes import RUN_TIME_CLASSES, class_of
from duly.sim.workloads.workload import NodeGroup, Workload

COLUMNS = 18
DELAY_TOLERANCE = timedelta(minutes=5)
"""Traces have none; that of the plan `unlimited`."""


class Job(NamedTuple):
    """A line of the trace."""

    submitted: float
    run_time: float
    processors: int
    requested_time: float
    user: int
    group: int


class TraceArrivals:
    """The jobs of a trace as tasks; a seed changes nothing."""

    def __init__(
        self,
        jobs: Sequence[Job],
        tenants: Sequence[int],
        shape_ids: dict[int, int],
        cpus_per_node: int,
    ) -> None:
        """Take the `jobs` by time of submission, and the tenant of each."""
        self._jobs = jobs
        self._tenants = tenants
        self._shape_ids = shape_ids
        self._cpus_per_node = cpus_per_node

    has_names = False
    """The class of a job follows from its true run time, which no server could know."""

    @property
    def total(self) -> int | None:
        """Return the number of jobs."""
        return len(self._jobs)

    def tasks(self, seed: int) -> Iterator[SimTask]:
        """Yield tasks by their time of arrival."""
        slack = DELAY_TOLERANCE.total_seconds()
        caps: dict[float, timedelta] = {}
        id_ = 0
        for number, (job, tenant_id) in enumerate(zip(self._jobs, self._tenants, strict=True), 1):
            cap = max(job.run_time, job.requested_time, 1.0)
            class_id = class_of(job.run_time)
            parts = split(job.processors, self._cpus_per_node)
            for processors in parts:
                id_ += 1
                yield SimTask(
                    id_,
                    tenant_id,
                    self._shape_ids[processors],
                    class_id,
                    job.submitted,
                    job.run_time,
                    second(int(job.submitted + slack)),
                    DELAY_TOLERANCE,
                    caps.setdefault(cap, timedelta(seconds=cap)),
                    job=number,
                    parts=len(parts),
                )


def is_trace(file: Path) -> bool:
    """Return True if the name of a file is that of a trace."""
    return file.name.removesuffix(".gz").endswith(".swf")


def read_trace(file: Path, options: FleetOptions) -> Workload:
    """Read a trace; unless `options` say otherwise, the fleet is as large as its machine was."""
    jobs, header, skipped = _read(file, options.scale_load)
    if not jobs:
        raise ConfigError(f"{file} has no job with a run time and processors.")
    largest = max(job.processors for job in jobs)
    cpus = options.cpus_per_node or largest
    processors = header.get("MaxProcs") or header.get("MaxNodes") or largest
    nodes = options.node_count(max(1, -(-processors // cpus)))
    names, tenants = _tenants(jobs, options)
    sizes = sorted({size for job in jobs for size in split(job.processors, cpus)})
    shape_ids = {size: number for number, size in enumerate(sizes, 1)}
    return Workload(
        name=file.name.removesuffix(".gz").removesuffix(".swf"),
        duration=max(job.submitted for job in jobs) + 1.0,
        nodes=(NodeGroup(count=nodes, capacity=Resources(cpu_milli=1000 * cpus)),),
        tenants=names,
        weights={},
        classes=tuple(RUN_TIME_CLASSES),
        shapes={id_: Shape(Resources(cpu_milli=1000 * size)) for size, id_ in shape_ids.items()},
        arrivals=TraceArrivals(jobs, tenants, shape_ids, cpus),
        notes=(*options.notes, *_notes(jobs, cpus, skipped)),
    )


def split(processors: int, cpus_per_node: int) -> list[int]:
    """Return the cores of the tasks that a job runs as: as few and as equal as they can be."""
    parts = -(-processors // cpus_per_node)
    each, more = divmod(processors, parts)
    return [each + 1] * more + [each] * (parts - more)


def _notes(jobs: Sequence[Job], cpus: int, skipped: int) -> Iterator[str]:
    if skipped:
        yield f"{skipped:,} jobs without a run time or processors were left out."
    if large := sum(job.processors > cpus for job in jobs):
        yield (
            f"{large:,} jobs need more than the {cpus} cores of a node and run as several tasks, "
            "each on its own node."
        )


def _tenants(jobs: Sequence[Job], options: FleetOptions) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the tenants, and the tenant of each job."""
    kind = "group" if options.tenants_by_group else "user"
    owners = [job.group if options.tenants_by_group else job.user for job in jobs]
    ids = {owner: number for number, owner in enumerate(sorted(set(owners)))}
    names = tuple(f"{kind}-{owner}" if owner >= 0 else f"unknown {kind}" for owner in ids)
    return names, [ids[owner] for owner in owners]


def _read(file: Path, scale_load: float) -> tuple[list[Job], dict[str, int], int]:
    """Return the jobs by time, the numbers of the header, and how many jobs were unusable."""
    jobs: list[Job] = []
    header: dict[str, int] = {}
    skipped = 0
    try:
        with _open(file) as lines:
            for number, line in enumerate(lines, 1):
                if line.startswith(";"):
                    name, _, value = line[1:].partition(":")
                    if value.strip().isdigit():
                        header.setdefault(name.strip(), int(value))
                elif fields := line.split():
                    job = _job(fields, f"{file}, line {number}")
                    if job.run_time >= 0 and job.processors > 0 and job.submitted >= 0:
                        jobs.append(job)
                    else:
                        skipped += 1
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {file}: {error}.") from error
    # From the first job on; a higher load is the same jobs in less time.
    began = min((job.submitted for job in jobs), default=0.0)
    jobs = [job._replace(submitted=(job.submitted - began) / scale_load) for job in jobs]
    jobs.sort(key=lambda job: job.submitted)
    return jobs, header, skipped


def _open(file: Path) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", errors="replace")
    return file.open(encoding="utf-8", errors="replace")


def _job(fields: Sequence[str], where: str) -> Job:
    if len(fields) < COLUMNS:
        raise ConfigError(f"{where}: a job has {COLUMNS} columns, and this has {len(fields)}.")
    try:
        numbers = [float(field) for field in fields[:COLUMNS]]
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        raise ConfigError(f"{where}: {wrong[:40]!r} is not a number.") from None
    processors = numbers[4] if numbers[4] > 0 else numbers[7]
    return Job(
        submitted=numbers[1],
        run_time=numbers[3],
        processors=int(processors),
        requested_time=numbers[8],
        user=int(numbers[11]),
        group=int(numbers[12]),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
