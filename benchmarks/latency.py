"""Measures the start latency of single tasks on an idle system.

Before each task the system is idle for up to two seconds. The task is `date`, which prints the time
at which it runs: after fork, limits, exec and dynamic linking. The same clock is read just before
the submit is sent, over an open connection.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator, Sequence

import asyncpg

from benchmarks import checks, cluster, installation
from benchmarks.installation import Installation
from benchmarks.load import TRUE_TASK, Client, Requests
from benchmarks.polling import MIN_INTERVAL_SECONDS
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_most, percentile

DATE_TASK = TRUE_TASK | {"command": ["/bin/date", "+%s.%N"]}
WARM_UP_TASKS = 20
POLL_DELAY_SECONDS = 0.04
"""Seconds before the first poll for the end, so that polling does not delay the task."""
MAX_IDLE_SECONDS = 2.0
"""The longest idle time before a task: caches get cold, and periodic work falls into it."""
ROW = "x" * 300
"""About as long as the row of a task."""


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit one task at a time, and read its start time from its output."""
    count = rig.sizes.latencies
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as instance:
        sent = asyncio.run(_submit_one_by_one(instance, WARM_UP_TASKS + count))
        checks.all_done(dsn, WARM_UP_TASKS + count)
        started = _start_times(dsn)
        spawns, commits = asyncio.run(_measure_baseline(instance, count))
    start_latencies = [(began - at) * 1000 for (at, _), began in zip(sent, started, strict=True)][
        WARM_UP_TASKS:
    ]
    if min(start_latencies) < 0:
        raise checks.CheckFailed("a task started before it was submitted: the clock was changed")
    response_times = [took * 1000 for _, took in sent][WARM_UP_TASKS:]
    yield from _duly_figures(start_latencies, response_times)
    yield from _baseline_figures(spawns, commits)


async def _submit_one_by_one(instance: Installation, count: int) -> list[tuple[float, float]]:
    """Return when each submit was sent, and the seconds until its response."""
    requests = Requests(instance.url, instance.key)
    request = requests.post("/v1/tasks", DATE_TASK)
    sent, rng = [], random.Random(1)
    client = Client(requests.address, (b"201",))
    conn = await asyncpg.connect(instance.dsn)
    try:
        for _ in range(count):
            await asyncio.sleep(_idle_seconds(rng))
            at = time.time()
            client.request(request)
            sent.append((at, time.time() - at))
            await asyncio.sleep(POLL_DELAY_SECONDS)
            while await conn.fetchval("select exists (select from duly.live)"):
                await asyncio.sleep(MIN_INTERVAL_SECONDS)
    finally:
        client.socket.close()
        await conn.close()
    return sent


async def _measure_baseline(instance: Installation, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds to start `date`, and to commit a row, each after the same idle time."""
    spawns, commits, rng = [], [], random.Random(1)
    conn = await asyncpg.connect(instance.dsn)
    try:
        await conn.execute("create table public.bench_row (payload text)")
        for _ in range(count):
            await asyncio.sleep(POLL_DELAY_SECONDS + _idle_seconds(rng))
            at = time.time()
            spawns.append(_spawn_date() - at)
            at = time.time()
            await conn.execute("insert into public.bench_row values ($1)", ROW)
            commits.append(time.time() - at)
        await conn.execute("drop table public.bench_row")
    finally:
        await conn.close()
    return spawns, commits


def _idle_seconds(rng: random.Random) -> float:
    """Draw an idle time: mostly short, sometimes long, in phase with nothing periodic."""
    return rng.random() ** 3 * MAX_IDLE_SECONDS


def _spawn_date() -> float:
    """Start `date` with posix_spawn alone, and return the time that it printed."""
    read_end, write_end = os.pipe()
    streams = [(os.POSIX_SPAWN_DUP2, write_end, 1), (os.POSIX_SPAWN_CLOSE, read_end)]
    command = DATE_TASK["command"]
    pid = os.posix_spawn(command[0], command, {}, file_actions=streams)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        output = pipe.read()
    os.waitpid(pid, 0)
    return float(output)


def _baseline_figures(spawns: Sequence[float], commits: Sequence[float]) -> Iterator[Figure]:
    """Yield the latency of a process start and of a commit without Duly."""
    for name, seconds in (
        ("posix_spawn → process runs, without Duly, after the same rest", spawns),
        ("a row sent → on disk, without Duly, after the same rest", commits),
    ):
        for share in (0.5, 0.99):
            yield Figure(
                part="latency",
                name=f"{name}, p{share * 100:.0f}",
                value=percentile(seconds, share) * 1000,
                unit="ms",
            )


def _duly_figures(
    start_latencies: Sequence[float], response_times: Sequence[float]
) -> Iterator[Figure]:
    for share, bound in ((0.5, 6.0), (0.99, 15.0)):
        yield Figure(
            part="latency",
            name=f"submit sent → process runs, one at a time, p{share * 100:.0f}",
            value=percentile(start_latencies, share),
            unit="ms",
            target=at_most(bound),
            note="as the process itself wrote down",
        )
    yield Figure(
        part="latency",
        name="submit sent → answered, one at a time, p50",
        value=percentile(response_times, 0.5),
        unit="ms",
    )


def _start_times(dsn: str) -> list[float]:
    """Return the time that each task printed, in the order of submission."""
    rows = cluster.rows(dsn, "select log_tail from duly.attempts order by task_id")
    return [float(row[0].decode()) for row in rows]
