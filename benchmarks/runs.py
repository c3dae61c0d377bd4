"""End to end: /bin/true from the batch that submits it to the last end, against raw processes.

What it costs is taken from the same rounds: CPU by part, and WAL. The more run at a time, the
more of them share a report, a lease and a poll; so it is told for fewer, too.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import checks, cluster, installation, limits, usage
from benchmarks.endings import await_empty
from benchmarks.installation import Installation
from benchmarks.isolated import isolated_rate
from benchmarks.load import AT_A_TIME, BATCH, TRUE, Requests, send_all, true
from benchmarks.rig import Rig
from benchmarks.usage import Cpu
from duly.bench.figure import Figure, at_least, median

WARM = 100
FEWER = (50, 20)


@dataclass(frozen=True)
class Costs:
    """What so many tasks have cost: CPU seconds by part, bytes of WAL."""

    tasks: int
    cpu: dict[str, Cpu]
    wal: int


def measure(rig: Rig) -> Iterator[Figure]:
    """Run /bin/true as tasks, with posix_spawn on two processes, and with xargs."""
    sizes = rig.sizes
    warm = min(WARM, sizes.runs)
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        run_all(place, warm)
        through, costs = _costed(place, sizes.rounds, sizes.runs)
        # Beside an idle Duly, not a stopped one: both have the same machine.
        before = _buried()
        spawned = [limits.spawn_rate(sizes.spawns) for _ in range(sizes.rounds)]
        alone = (_buried() - before) / (sizes.rounds * sizes.spawns)
        by_xargs = [limits.xargs_rate(sizes.spawns) for _ in range(sizes.rounds)]
        apart = [isolated_rate(sizes.spawns) for _ in range(sizes.rounds)]
        again, _ = _costed(place, sizes.rounds, sizes.runs)
        fewer = {
            at_a_time: [run_all(place, sizes.runs, true(at_a_time)) for _ in range(sizes.rounds)]
            for at_a_time in FEWER
        }
        checks.all_done(dsn, warm + (2 + len(FEWER)) * costs.tasks)
    yield from _rates(median(through + again), median(spawned), median(by_xargs))
    yield from _apart(median(through + again), [rate for rate in apart if rate is not None])
    for at_a_time, rates in fewer.items():
        yield Figure(
            part="run",
            name=f"the same, {at_a_time} at a time",
            value=median(rates),
            unit="/s",
            limit=median(spawned),
            against="posix_spawn of /bin/true on 2 processes",
        )
    yield from _told(costs)
    name = "CPU per process, posix_spawn alone"
    yield Figure(part="run", name=name, value=alone * 1e6, unit="µs")


def _costed(place: Installation, rounds: int, runs: int) -> tuple[list[float], Costs]:
    """Return the rates of some rounds, and what they have cost in all."""
    cpu, wal = _cpu(place), _wal(place.dsn)
    rates = [run_all(place, runs) for _ in range(rounds)]
    spent = {name: after - cpu[name] for name, after in _cpu(place).items()}
    return rates, Costs(rounds * runs, spent, _wal(place.dsn) - wal)


def run_all(
    place: Installation, count: int, task: dict[str, Any] = TRUE, batch: int = BATCH
) -> float:
    """Return how many /bin/true a second go from submit to done, of `count` in some requests."""
    requests = Requests(place.url, place.key)
    prepared = requests.batches(count, task, batch)
    began = time.perf_counter()
    send_all(requests, prepared, 1)
    await_empty(place.dsn)
    return count / (time.perf_counter() - began)


def _cpu(place: Installation) -> dict[str, Cpu]:
    parts = {name: usage.cpu(pids) for name, pids in place.parts.items()}
    return parts | {"postgresql": usage.cpu(place.cluster.pids)}


def _buried() -> float:
    """Return the CPU seconds of what this process has started and buried."""
    times = os.times()
    return times.children_user + times.children_system


def _wal(dsn: str) -> int:
    found: int = cluster.value(dsn, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")
    return found


def _rates(through: float, spawned: float, by_xargs: float) -> Iterator[Figure]:
    name = f"/bin/true from submit to done, isolation process, {AT_A_TIME} at a time"
    yield Figure(
        part="run",
        name=name,
        value=through,
        unit="/s",
        limit=spawned,
        against="posix_spawn of /bin/true on 2 processes",
        target=at_least(0.55),
    )
    yield Figure(
        part="run",
        name="the same",
        value=through,
        unit="/s",
        limit=by_xargs,
        against="xargs -P2 /bin/true",
    )


def _apart(through: float, rates: list[float]) -> Iterator[Figure]:
    if rates:
        yield Figure(
            part="run",
            name="the same",
            value=through,
            unit="/s",
            limit=median(rates),
            against="posix_spawn on 2 processes, each with a group, user, folder and pipe",
        )


def _told(costs: Costs) -> Iterator[Figure]:
    agent, postgres = costs.cpu.get("agent", Cpu()), costs.cpu["postgresql"]
    told = {
        "CPU per task, server": costs.cpu["server"].own,
        "CPU per task, agent with its supervisor": agent.own,
        "CPU per task, PostgreSQL": postgres.own + postgres.buried,
        "CPU per task, the task's own process, fork and exec included": agent.buried,
    }
    for name, seconds in told.items():
        yield Figure(part="run", name=name, value=seconds / costs.tasks * 1e6, unit="µs")
    yield Figure(part="run", name="WAL per task", value=costs.wal / costs.tasks, unit="bytes")
