"""End to end: /bin/true from the batch that submits it to the last end, against raw processes.

What it costs is taken from the same rounds: CPU by part, and WAL.
"""

import os
import time
from collections.abc import Iterator

from benchmarks import checks, cluster, installation, limits, usage
from benchmarks.endings import await_empty
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.usage import Cpu
from duly.bench.figure import Figure, at_least, median

WARM = 100


def measure(rig: Rig) -> Iterator[Figure]:
    """Run /bin/true as tasks, with posix_spawn on two processes, and with xargs."""
    sizes = rig.sizes
    through, spawned, by_xargs = list[float](), list[float](), list[float]()
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        run_all(place, min(WARM, sizes.runs))
        before, wal = _cpu(place), _wal(dsn)
        for _ in range(sizes.rounds):
            through.append(run_all(place, sizes.runs))
        cost, wal = {name: cpu - before[name] for name, cpu in _cpu(place).items()}, _wal(dsn) - wal
        alone = os.times()
        spawned += [limits.spawn_rate(sizes.spawns) for _ in range(sizes.rounds)]
        alone_cost = _children(os.times()) - _children(alone)
        by_xargs += [limits.xargs_rate(sizes.spawns) for _ in range(sizes.rounds)]
        # Beside an idle Duly, not a stopped one: both had the same machine.
        through += [run_all(place, sizes.runs) for _ in range(sizes.rounds)]
        tasks = min(WARM, sizes.runs) + 2 * sizes.rounds * sizes.runs
        checks.all_done(dsn, tasks)
    yield from _rates(median(through), median(spawned), median(by_xargs))
    yield from _costs(cost, wal, sizes.rounds * sizes.runs)
    yield Figure(
        part="run",
        name="CPU per process, posix_spawn alone",
        value=alone_cost / (sizes.rounds * sizes.spawns) * 1e6,
        unit="µs",
    )


def run_all(place: Installation, count: int) -> float:
    """Return how many /bin/true a second go from submit to done, of `count` in one batch."""
    requests = Requests(place.url, place.key)
    request = requests.batch(count, TRUE)
    began = time.perf_counter()
    send_all(requests, [request], 1)
    await_empty(place.dsn)
    return count / (time.perf_counter() - began)


def _cpu(place: Installation) -> dict[str, Cpu]:
    parts = {name: usage.cpu(pids) for name, pids in place.parts.items()}
    return parts | {"postgresql": usage.cpu(place.cluster.pids)}


def _children(times: os.times_result) -> float:
    return times.children_user + times.children_system


def _wal(dsn: str) -> int:
    found: int = cluster.value(dsn, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")
    return found


def _rates(through: float, spawned: float, by_xargs: float) -> Iterator[Figure]:
    name = "/bin/true from submit to done, isolation process"
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


def _costs(cost: dict[str, Cpu], wal: int, tasks: int) -> Iterator[Figure]:
    agent = cost.get("agent", Cpu())
    told = {
        "CPU per task, server": cost["server"].own,
        "CPU per task, agent with its supervisor": agent.own,
        "CPU per task, PostgreSQL": cost["postgresql"].own + cost["postgresql"].buried,
        "CPU per task, the task's own process, fork and exec included": agent.buried,
    }
    for name, seconds in told.items():
        yield Figure(part="run", name=name, value=seconds / tasks * 1e6, unit="µs")
    yield Figure(part="run", name="WAL per task", value=wal / tasks, unit="bytes")
