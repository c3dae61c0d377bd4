"""Reads workloads from TOML files; the format is in docs/reference/workloads.md."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from duly.config import LeaseSettings, RetrySettings, SchedulingSettings
from duly.errors import ConfigError
from duly.model.node import NodeProfile
from duly.model.queues.queue import Queue
from duly.model.resources import TIERS, Resources
from duly.policy import placement
from duly.sim.workloads.arrivals import StreamArrivals
from duly.sim.workloads.distributions import Constant, Exponential, LogNormal, RunTime, Uniform
from duly.sim.workloads.fleet_options import FleetOptions
from duly.sim.workloads.toml_lines import key_lines
from duly.sim.workloads.toml_table import Table
from duly.sim.workloads.workload import (
    NodeGroup,
    Stream,
    TaskClass,
    TenantLoad,
    Workload,
    intern_shapes,
)

FILE_KEYS = (
    "name", "duration", "round_interval", "scale", "nodes", "classes", "tenants", "scheduling",
    "leases", "retries",
)  # fmt: skip
AMOUNTS = ("cpu", "memory_mb", "disk_mb", "iops", "bandwidth_mbps", "ports", "extra")
NODE_KEYS = ("count", *AMOUNTS, "labels", "mean_time_between_failures", "repair_time")
CLASS_KEYS = (
    "name", "tier", "resources", "run_time", "queue", "delay_tolerance", "execution_cap",
    "priority", "max_attempts", "requires",
)  # fmt: skip
TENANT_KEYS = ("name", "count", "weight", "arrivals")
ARRIVAL_KEYS = ("class", "rate", "peak", "burst", "from", "until")
MEMORY_MB_PER_CPU = 4096
DISK_MB_PER_CPU = 16_384
"""What a node has of memory and disk for each core, unless the file says otherwise."""
RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|min|h|day)")
SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86_400}
TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
MAX_PEAK_FACTOR = 2.0
"""The day is a cosine around the mean, and no rate is below 0."""
QUEUES = {"urgent": Queue.URGENT, "off_peak": Queue.OFF_PEAK, "delayable": None}


class _Fleet(NamedTuple):
    groups: tuple[NodeGroup, ...]
    profiles: list[NodeProfile]


def read_workload(file: Path, options: FleetOptions) -> Workload:
    """Read a workload; `options` change its fleet and load."""
    text = _read(file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from error
    root = Table(values, (), file, key_lines(text))
    root.check_keys(FILE_KEYS, "a workload")
    scale = root.whole("scale", 1, least=1)
    duration = root.seconds("duration", positive=True)
    fleet = _fleet(root, scale, options)
    classes = _classes(root, fleet.profiles)
    tenants = _tenants(root, classes, options.scale_load / scale)
    shapes, shape_ids = intern_shapes([each.shape for each in classes])
    notes = [*options.notes]
    if scale > 1:
        notes.append(
            f"Sampled: arrivals and nodes are divided by {scale:,}. Multiply counts of tasks and "
            "nodes by that; waits are slightly longer than in the whole fleet."
        )
    return Workload(
        name=root.text("name", file.stem),
        duration=duration,
        nodes=fleet.groups,
        tenants=tuple(tenant.name for tenant in tenants),
        weights={id_: tenant.weight for id_, tenant in enumerate(tenants)},
        classes=tuple(each.name for each in classes),
        shapes=shapes,
        arrivals=StreamArrivals(tenants, classes, shape_ids, duration),
        max_attempts=tuple(each.max_attempts for each in classes),
        scheduling=root.settings("scheduling", SchedulingSettings),
        leases=root.settings("leases", LeaseSettings),
        retries=root.settings("retries", RetrySettings),
        round_interval=root.seconds("round_interval", 0.02),
        scale=scale,
        notes=tuple(notes),
    )


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not a text file: {error.reason}.") from error


def _fleet(root: Table, scale: int, options: FleetOptions) -> _Fleet:
    groups = [_node_group(table, scale) for table in root.tables("nodes")]
    if not groups:
        root.refuse(None, "There are no nodes; write [[nodes]] with a count and cpu.")
    changed = options.apply(groups)
    return _Fleet(changed, [NodeProfile(group.capacity, group.labels) for group in changed])


def _node_group(table: Table, scale: int) -> NodeGroup:
    table.check_keys(NODE_KEYS, "[[nodes]]")
    count = table.whole("count", 1, least=1)
    if count % scale:
        table.refuse("count", f"count must be a multiple of scale, which is {scale}.")
    cpu = table.number("cpu")
    if cpu <= 0:
        table.refuse("cpu", "cpu must be above 0.")
    needs = _amounts(table)
    capacity = Resources(
        cpu_milli=needs.cpu_milli,
        memory_mb=needs.memory_mb or round(cpu * MEMORY_MB_PER_CPU),
        disk_mb=needs.disk_mb or round(cpu * DISK_MB_PER_CPU),
        iops=needs.iops,
        bandwidth_mbps=needs.bandwidth_mbps,
        ports=needs.ports,
        extra=needs.extra,
    )
    fails = "mean_time_between_failures" in table
    return NodeGroup(
        count=count // scale,
        capacity=capacity,
        labels=table.strings("labels"),
        mean_time_between_failures=(
            table.seconds("mean_time_between_failures", positive=True) if fails else None
        ),
        repair_time=table.seconds("repair_time", 600.0, positive=True),
    )


def _amounts(table: Table) -> Resources:
    extra = table.table("extra")
    return Resources(
        cpu_milli=round(1000 * table.number("cpu", 0.0)),
        memory_mb=table.whole("memory_mb", 0),
        disk_mb=table.whole("disk_mb", 0),
        iops=table.whole("iops", 0),
        bandwidth_mbps=table.whole("bandwidth_mbps", 0),
        ports=table.whole("ports", 0),
        extra={name: extra.whole(name) for name in extra.keys},
    )


def _classes(root: Table, profiles: Sequence[NodeProfile]) -> list[TaskClass]:
    classes: list[TaskClass] = []
    for table in root.tables("classes"):
        table.check_keys(CLASS_KEYS, "[[classes]]")
        task_class = _task_class(table)
        if task_class.name in {each.name for each in classes}:
            table.refuse("name", f"There are two classes named {task_class.name!r}.")
        if not placement.could_ever_fit(task_class.shape, profiles):
            table.refuse(
                "resources" if "resources" in table else "tier",
                f"A task of {task_class.name!r} fits on no node, even an idle one.",
            )
        classes.append(task_class)
    if not classes:
        root.refuse(
            None, "There are no classes of tasks; write [[classes]] with name and run_time."
        )
    return classes


def _task_class(table: Table) -> TaskClass:
    if "resources" in table:
        if "tier" in table:
            table.refuse("tier", "Give a tier or resources, not both.")
        amounts = table.table("resources")
        amounts.check_keys(AMOUNTS, "resources")
        needs = _amounts(amounts)
    else:
        needs = TIERS[table.choice("tier", list(TIERS), "regular")]
    return TaskClass(
        name=table.text("name"),
        needs=needs,
        run_time=_run_time(table),
        requires=table.strings("requires"),
        queue=QUEUES[table.choice("queue", list(QUEUES), "delayable")],
        delay_tolerance=timedelta(seconds=table.seconds("delay_tolerance", 300.0)),
        execution_cap=timedelta(seconds=table.seconds("execution_cap", 86_400.0, positive=True)),
        priority=int(table.number("priority", 0)),
        max_attempts=table.whole("max_attempts", 3, least=1),
    )


def _run_time(table: Table) -> RunTime:
    if not isinstance(table.value("run_time"), dict):
        return Constant(table.seconds("run_time", positive=True))
    parts = table.table("run_time")
    match parts.choice("distribution", ("constant", "uniform", "exponential", "lognormal")):
        case "constant":
            parts.check_keys(("distribution", "value"), "a constant run_time")
            return Constant(parts.seconds("value", positive=True))
        case "uniform":
            parts.check_keys(("distribution", "min", "max"), "a uniform run_time")
            low, high = parts.seconds("min"), parts.seconds("max", positive=True)
            if low > high:
                parts.refuse("min", "min must not be above max.")
            return Uniform(low, high)
        case "exponential":
            parts.check_keys(("distribution", "mean"), "an exponential run_time")
            return Exponential(parts.seconds("mean", positive=True))
        case _:
            parts.check_keys(("distribution", "median", "p95"), "a lognormal run_time")
            median, p95 = parts.seconds("median", positive=True), parts.seconds("p95")
            if p95 < median:
                parts.refuse("p95", "p95 must not be below the median.")
            return LogNormal(median, p95)


def _tenants(root: Table, classes: Sequence[TaskClass], factor: float) -> list[TenantLoad]:
    ids = {each.name: number for number, each in enumerate(classes)}
    tenants: list[TenantLoad] = []
    for table in root.tables("tenants"):
        table.check_keys(TENANT_KEYS, "[[tenants]]")
        name, count = table.text("name"), table.whole("count", 1, least=1)
        weight = table.whole("weight", 1, least=1)
        streams = tuple(_stream(each, ids, factor) for each in table.tables("arrivals"))
        if not streams:
            table.refuse(None, f"Tenant {name!r} submits nothing; write [[tenants.arrivals]].")
        names = [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
        taken = {tenant.name for tenant in tenants}
        if double := taken & set(names):
            table.refuse("name", f"There are two tenants named {min(double)!r}.")
        tenants += [TenantLoad(name=each, weight=weight, streams=streams) for each in names]
    if not tenants:
        root.refuse(None, "There are no tenants; write [[tenants]] with a name and arrivals.")
    return tenants


def _stream(table: Table, class_ids: Mapping[str, int], factor: float) -> Stream:
    table.check_keys(ARRIVAL_KEYS, "[[tenants.arrivals]]")
    if ("rate" in table) == ("burst" in table):
        table.refuse(None, "Give either a rate or a burst.")
    peak = table.table("peak")
    peak.check_keys(("factor", "at"), "peak")
    peak_factor = peak.number("factor", 1.0)
    if not 1 <= peak_factor <= MAX_PEAK_FACTOR:
        peak.refuse("factor", "factor is the rate at the peak over the mean, from 1 to 2.")
    return Stream(
        class_id=class_ids[table.choice("class", list(class_ids))],
        rate=factor * _rate(table) if "rate" in table else 0.0,
        burst=max(1, round(factor * table.whole("burst"))) if "burst" in table else 0,
        peak_factor=peak_factor,
        peak_at=_time_of_day(peak),
        starts_at=table.seconds("from", 0.0),
        ends_at=table.seconds("until", positive=True) if "until" in table else None,
    )


def _rate(table: Table) -> float:
    value = table.value("rate")
    match = RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        table.refuse("rate", 'rate must be like "20/s", "600/min", "5000/h" or "1000000/day".')
    return float(match[1]) / SECONDS[match[2]]


def _time_of_day(peak: Table) -> float:
    match = TIME_OF_DAY.fullmatch(text := peak.text("at", "14:00"))
    if match is None:
        peak.refuse("at", f'at must be a time of day like "14:00", not {text!r}.')
    return int(match[1]) * 3600.0 + int(match[2]) * 60.0
