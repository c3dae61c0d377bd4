"""Measures /bin/true end to end, from the batch submit to the last end, against raw processes.

What it costs is taken from the same rounds: CPU by part, and WAL. The more run at a time, the
more of them share a report, a lease and a poll; so it is told for fewer, too.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks import checks, cluster, installation, limits, usage
from benchmarks.installation import Installation
from benchmarks.isolated_spawn import isolated_rate
from benchmarks.load import AT_A_TIME, BATCH, TRUE, Requests, send_all, true
from benchmarks.rig import Rig, Sizes
from benchmarks.usage import Cpu
from benchmarks.waiting import await_empty
from duly.bench.figure import Figure, at_least, median, percentile

WARM = 200
FEWER = (100, 50, 20)
SPAWN = "posix_spawn of /bin/true on 2 processes"


@dataclass
class Rounds:
    """What so many rounds came to: rates, and what Duly's tasks have cost."""

    through: list[float] = field(default_factory=list)
    fewer: dict[int, list[float]] = field(default_factory=lambda: {one: [] for one in FEWER})
    spawned: list[float] = field(default_factory=list)
    by_xargs: list[float] = field(default_factory=list)
    isolated: list[float] = field(default_factory=list)
    spawning: float = 0.0
    """CPU seconds of all that were spawned, and of who has done it."""
    cpu: dict[str, Cpu] = field(default_factory=dict)
    wal: int = 0


def measure(rig: Rig) -> Iterator[Figure]:
    """Run /bin/true as tasks, with posix_spawn on two processes, and with xargs.

    In turns: the machine is not the same from one second to the next. Whoever waits for
    its turn is idle and not stopped.
    """
    sizes, rounds = rig.sizes, Rounds()
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        run_all(place, WARM)
        for _ in range(sizes.run_rounds):
            _round(rounds, place, sizes)
        checks.all_done(dsn, WARM + sizes.run_rounds * (1 + len(FEWER)) * sizes.runs)
    yield from _rates(rounds)
    yield from _told(rounds, sizes.run_rounds * sizes.runs)
    name = "CPU per process, posix_spawn alone"
    spent = rounds.spawning / (sizes.run_rounds * sizes.spawns)
    yield Figure(part="run", name=name, value=spent * 1e6, unit="µs")


def _round(rounds: Rounds, place: Installation, sizes: Sizes) -> None:
    cpu, wal = _cpu(place), _wal(place.dsn)
    rounds.through.append(run_all(place, sizes.runs))
    rounds.wal += _wal(place.dsn) - wal
    for name, after in _cpu(place).items():
        rounds.cpu[name] = rounds.cpu.get(name, Cpu()) + after - cpu[name]
    before = _buried()
    rounds.spawned.append(limits.spawn_rate(sizes.spawns))
    rounds.spawning += _buried() - before
    rounds.by_xargs.append(limits.xargs_rate(sizes.spawns))
    if (isolated := isolated_rate(sizes.spawns)) is not None:
        rounds.isolated.append(isolated)
    for at_a_time, rates in rounds.fewer.items():
        rates.append(run_all(place, sizes.runs, true(at_a_time)))


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


def _rates(rounds: Rounds) -> Iterator[Figure]:
    through, spawned = median(rounds.through), median(rounds.spawned)
    ratios = [one / other for one, other in zip(rounds.through, rounds.spawned, strict=True)]
    low, high = percentile(ratios, 0.25), percentile(ratios, 0.75)
    yield Figure(
        part="run",
        name=f"/bin/true from submit to done, isolation process, {AT_A_TIME} at a time",
        value=through,
        unit="/s",
        limit=spawned,
        against=SPAWN,
        target=at_least(0.55),
        note=f"{len(ratios)} rounds, half of them {low:.0%} to {high:.0%}",
    )
    others = {
        "xargs -P2 /bin/true": rounds.by_xargs,
        "posix_spawn on 2 processes, each with a group, user, folder and pipe": rounds.isolated,
    }
    for against, rates in others.items():
        if rates:
            yield _beside("the same", through, median(rates), against)
    for at_a_time, rates in rounds.fewer.items():
        yield _beside(f"the same, {at_a_time} at a time", median(rates), spawned, SPAWN)


def _beside(name: str, value: float, limit: float, against: str) -> Figure:
    return Figure(part="run", name=name, value=value, unit="/s", limit=limit, against=against)


def _told(rounds: Rounds, tasks: int) -> Iterator[Figure]:
    agent, postgres = rounds.cpu.get("agent", Cpu()), rounds.cpu["postgresql"]
    told = {
        "CPU per task, server": rounds.cpu["server"].own,
        "CPU per task, agent with its supervisor": agent.own,
        "CPU per task, PostgreSQL": postgres.own + postgres.buried,
        "CPU per task, the task's own process, fork and exec included": agent.buried,
    }
    for name, seconds in told.items():
        yield Figure(part="run", name=name, value=seconds / tasks * 1e6, unit="µs")
    yield Figure(part="run", name="WAL per task", value=rounds.wal / tasks, unit="bytes")
