"""Measures /bin/true end to end, from the batch submit to the last end, against raw processes.

CPU time by part and WAL are taken from the same rounds. The more tasks run concurrently, the more
of them share a poll, a lease statement and a report; so lower concurrencies are measured, too.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks import checks, cluster, installation, limits, usage
from benchmarks.installation import Installation
from benchmarks.isolated_spawn import isolated_rate
from benchmarks.load import BATCH_SIZE, CONCURRENCY, TRUE_TASK, Requests, send_all, true_task
from benchmarks.rig import Rig, Sizes
from benchmarks.usage import Cpu
from benchmarks.waiting import await_empty
from duly.bench.figure import Figure, at_least, median, percentile

WARM_UP_TASKS = 200
LOWER_CONCURRENCIES = (100, 50, 20)
SPAWN_LIMIT = "posix_spawn of /bin/true on 2 processes"


@dataclass
class Rounds:
    """The rates of all rounds, and the cost of Duly's tasks in them."""

    duly: list[float] = field(default_factory=list)
    by_concurrency: dict[int, list[float]] = field(
        default_factory=lambda: {count: [] for count in LOWER_CONCURRENCIES}
    )
    spawned: list[float] = field(default_factory=list)
    xargs: list[float] = field(default_factory=list)
    isolated: list[float] = field(default_factory=list)
    spawn_cpu_seconds: float = 0.0
    """CPU seconds of the spawned processes, and of the processes that spawned them."""
    cpu: dict[str, Cpu] = field(default_factory=dict)
    wal: int = 0


def measure(rig: Rig) -> Iterator[Figure]:
    """Run /bin/true as tasks, with posix_spawn on two processes, and with xargs, in turns.

    Duly keeps running, idle, while it is the turn of another.
    """
    sizes, rounds = rig.sizes, Rounds()
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as instance:
        throughput(instance, WARM_UP_TASKS)
        for _ in range(sizes.run_rounds):
            _run_round(rounds, instance, sizes)
        checks.all_done(
            dsn, WARM_UP_TASKS + sizes.run_rounds * (1 + len(LOWER_CONCURRENCIES)) * sizes.runs
        )
    yield from _rate_figures(rounds)
    yield from _cost_figures(rounds, sizes.run_rounds * sizes.runs)
    name = "CPU per process, posix_spawn alone"
    seconds = rounds.spawn_cpu_seconds / (sizes.run_rounds * sizes.spawns)
    yield Figure(part="run", name=name, value=seconds * 1e6, unit="µs")


def _run_round(rounds: Rounds, instance: Installation, sizes: Sizes) -> None:
    cpu, wal = _cpu(instance), _wal_position(instance.dsn)
    rounds.duly.append(throughput(instance, sizes.runs))
    rounds.wal += _wal_position(instance.dsn) - wal
    for name, after in _cpu(instance).items():
        rounds.cpu[name] = rounds.cpu.get(name, Cpu()) + after - cpu[name]
    before = _reaped_cpu_seconds()
    rounds.spawned.append(limits.spawn_rate(sizes.spawns))
    rounds.spawn_cpu_seconds += _reaped_cpu_seconds() - before
    rounds.xargs.append(limits.xargs_rate(sizes.spawns))
    if (isolated := isolated_rate(sizes.spawns)) is not None:
        rounds.isolated.append(isolated)
    for concurrency, rates in rounds.by_concurrency.items():
        rates.append(throughput(instance, sizes.runs, true_task(concurrency)))


def throughput(
    instance: Installation, count: int, task: dict[str, Any] = TRUE_TASK, batch: int = BATCH_SIZE
) -> float:
    """Return the throughput of `count` tasks from submit to done, in tasks per second."""
    requests = Requests(instance.url, instance.key)
    prepared = requests.batches(count, task, batch)
    began = time.perf_counter()
    send_all(requests, prepared, 1)
    await_empty(instance.dsn)
    return count / (time.perf_counter() - began)


def _cpu(instance: Installation) -> dict[str, Cpu]:
    parts = {name: usage.cpu(pids) for name, pids in instance.parts.items()}
    return parts | {"postgresql": usage.cpu(instance.cluster.pids)}


def _reaped_cpu_seconds() -> float:
    """Return the CPU seconds of the children that this process has waited for."""
    times = os.times()
    return times.children_user + times.children_system


def _wal_position(dsn: str) -> int:
    position: int = cluster.value(dsn, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")
    return position


def _rate_figures(rounds: Rounds) -> Iterator[Figure]:
    duly, spawned = median(rounds.duly), median(rounds.spawned)
    ratios = [duly / limit for duly, limit in zip(rounds.duly, rounds.spawned, strict=True)]
    low, high = percentile(ratios, 0.25), percentile(ratios, 0.75)
    yield Figure(
        part="run",
        name=f"/bin/true from submit to done, isolation process, {CONCURRENCY} at a time",
        value=duly,
        unit="/s",
        limit=spawned,
        against=SPAWN_LIMIT,
        target=at_least(0.55),
        note=f"{len(ratios)} rounds, half of them {low:.0%} to {high:.0%}",
    )
    others = {
        "xargs -P2 /bin/true": rounds.xargs,
        "posix_spawn on 2 processes, each with a group, user, folder and pipe": rounds.isolated,
    }
    for against, rates in others.items():
        if rates:
            yield _rate_figure("the same", duly, median(rates), against)
    for concurrency, rates in rounds.by_concurrency.items():
        yield _rate_figure(
            f"the same, {concurrency} at a time", median(rates), spawned, SPAWN_LIMIT
        )


def _rate_figure(name: str, value: float, limit: float, against: str) -> Figure:
    return Figure(part="run", name=name, value=value, unit="/s", limit=limit, against=against)


def _cost_figures(rounds: Rounds, tasks: int) -> Iterator[Figure]:
    agent, postgres = rounds.cpu.get("agent", Cpu()), rounds.cpu["postgresql"]
    seconds_by_name = {
        "CPU per task, server": rounds.cpu["server"].own,
        "CPU per task, agent with its supervisor": agent.own,
        "CPU per task, PostgreSQL": postgres.own + postgres.reaped,
        "CPU per task, the task's own process, fork and exec included": agent.reaped,
    }
    for name, seconds in seconds_by_name.items():
        yield Figure(part="run", name=name, value=seconds / tasks * 1e6, unit="µs")
    yield Figure(part="run", name="WAL per task", value=rounds.wal / tasks, unit="bytes")
