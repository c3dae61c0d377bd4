"""Computes what operators ask about a simulation: waits, utilisation, fairness."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import msgspec

from duly.model.resources import NO_RESOURCES, Resources
from duly.sim.recorder import Recorder
from duly.sim.simulation import Simulation
from duly.sim.workloads.workload import Workload

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
JAIN_WINDOW = 60.0
"""Seconds over which the use of tenants is compared."""
NOTHING: Sequence[float] = ()
PREEMPTIONS = 0
"""Nothing is preempted yet."""


class Utilisation(msgspec.Struct, frozen=True):
    """The part of the fleet that was in use, of its most used kind of resource."""

    mean: float
    peak: float
    trough: float


class TenantFigures(msgspec.Struct, frozen=True):
    """What a tenant got."""

    share: float
    """Of the fleet, over the whole time."""
    p95_wait: float
    tasks: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one run; times are in seconds."""

    workload: str
    policy: str
    seed: int
    nodes: int
    scale: int
    """Arrivals and nodes were divided by this."""
    tasks: int
    failed: int
    attempts_lost: int
    missed_tolerances: int
    mean_bounded_slowdown: float
    utilisation: Utilisation
    waits: dict[str, dict[str, float]]
    tenants: dict[str, TenantFigures]
    jain: float
    """The mean of Jain's index over the minutes in which at least two tenants were backlogged:
    1 if each got the same per weight, 1/n if one of n got everything. 1 if there were none."""
    worst_jain: float
    contended_windows: int
    preemptions: int = PREEMPTIONS
    duration: float
    """How long tasks arrived."""
    makespan: float
    """When the last task ended."""
    lives_per_second: int
    """The speed of the simulation itself: tasks per second of real time."""
    notes: tuple[str, ...] = ()


def make_report(simulation: Simulation, policy: str, seconds: float) -> Report:
    """Sum up a simulation that has ended and took so many `seconds` of real time."""
    workload, recorder = simulation.workload, simulation.recorder
    shares = shares_over_time(workload, recorder)
    jains = jain_over_time(workload, shares, simulation.waiting.backlogged)
    return Report(
        workload=workload.name,
        policy=policy,
        seed=simulation.seed,
        nodes=workload.node_count,
        scale=workload.scale,
        tasks=recorder.ended,
        failed=recorder.failed,
        attempts_lost=recorder.attempts_lost,
        missed_tolerances=recorder.missed_tolerances,
        mean_bounded_slowdown=round(recorder.mean_bounded_slowdown, 4),
        utilisation=_utilisation(shares.used),
        waits={
            workload.classes[class_id]: _percentiles(waits)
            for class_id, waits in recorder.waits_of_classes()
        },
        tenants=_tenants(workload, recorder, shares.by_tenant),
        jain=round(sum(jains) / len(jains), 4) if jains else 1.0,
        worst_jain=round(min(jains, default=1.0), 4),
        contended_windows=len(jains),
        duration=workload.duration,
        makespan=round(recorder.last_end, 3),
        lives_per_second=round(recorder.ended / seconds) if seconds > 0 else 0,
        notes=workload.notes,
    )


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as it is printed for programs."""
    value: dict[str, Any] = msgspec.to_builtins(report)
    return value


class SharesOverTime(msgspec.Struct, frozen=True):
    """Parts of the fleet in use, from 0 to 1, by interval."""

    by_tenant: dict[int, list[float]]
    """The dominant share of each tenant."""
    used: list[float]
    """Of the kind of resource that is used most, by all tenants."""


def shares_over_time(workload: Workload, recorder: Recorder) -> SharesOverTime:
    """Return what tenants used in each interval."""
    total = _fleet(workload)
    kinds = [kind for kind, amount in total.items() if amount > 0]
    whole = dict(total.items())
    by_kind = {kind: [0.0] * recorder.interval_count for kind in kinds}
    by_tenant: dict[int, dict[str, list[float]]] = {}
    for (tenant_id, shape_id), used in recorder.used.items():
        needs = dict(workload.shapes[shape_id].needs.items())
        own = by_tenant.setdefault(tenant_id, {})
        for kind in kinds:
            if amount := needs.get(kind, 0):
                factor = amount / whole[kind] / recorder.interval
                own_kind = own.setdefault(kind, [0.0] * recorder.interval_count)
                of_all = by_kind[kind]
                for number, seconds in used.items():
                    own_kind[number] += factor * seconds
                    of_all[number] += factor * seconds
    dominant = max(by_kind.values(), key=sum, default=[0.0])
    return SharesOverTime(
        {
            tenant_id: [max(each) for each in zip(*own.values(), strict=True)]
            for tenant_id, own in sorted(by_tenant.items())
        },
        dominant,
    )


def jain_over_time(
    workload: Workload,
    shares: SharesOverTime,
    backlogged: Mapping[int, Iterable[tuple[float, float]]],
) -> list[float]:
    """Return Jain's index of each window in which at least two tenants were backlogged."""
    interval = workload.duration / len(shares.used)
    width = max(1, round(JAIN_WINDOW / interval))
    length = width * interval
    contending: dict[int, list[int]] = {}
    for tenant_id, spans in backlogged.items():
        for since, until in spans:
            first, last = ceil(since / length - 1e-6), int(until / length + 1e-6)
            for number in range(first, min(last, len(shares.used) // width)):
                contending.setdefault(number, []).append(tenant_id)
    return [
        jain(
            [
                sum(shares.by_tenant.get(tenant_id, NOTHING)[number * width :][:width])
                / workload.weights.get(tenant_id, 1)
                for tenant_id in tenants
            ]
        )
        for number, tenants in sorted(contending.items())
        if len(tenants) > 1
    ]


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 if all are equal, 1/n if one of n has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def percentile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that at least a `part` of the ordered values do not exceed."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


def _percentiles(waits: list[float]) -> dict[str, float]:
    ordered = sorted(waits)
    return {name: round(percentile(ordered, part), 3) for name, part in PERCENTILES.items()}


def _utilisation(used: Sequence[float]) -> Utilisation:
    mean = sum(used) / len(used)
    return Utilisation(round(mean, 4), round(max(used), 4), round(min(used), 4))


def _tenants(
    workload: Workload, recorder: Recorder, shares: Mapping[int, Sequence[float]]
) -> dict[str, TenantFigures]:
    figures = {}
    for tenant_id, waits in recorder.waits_of_tenants():
        share = shares.get(tenant_id, ())
        figures[workload.tenants[tenant_id]] = TenantFigures(
            round(sum(share) / max(1, len(share)), 5),
            round(percentile(sorted(waits), PERCENTILES["p95"]), 3),
            len(waits),
        )
    return figures


def _fleet(workload: Workload) -> Resources:
    total = NO_RESOURCES
    for group in workload.nodes:
        total = total.plus(group.capacity, group.count)
    return total
