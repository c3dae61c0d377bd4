"""Measures the start latency of single tasks on an idle system.

Between two tasks there is a rest of up to two seconds. The task is `date`, which writes down when
it runs: by then it has been forked, limited, executed and linked. The clock is the one by which
the submit was sent, over a connection that was there already.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator, Sequence

import asyncpg

from benchmarks import checks, cluster, installation
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Client, Requests
from benchmarks.polling import LOOK
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_most, percentile

DATE = TRUE | {"command": ["/bin/date", "+%s.%N"]}
WARM = 20
QUIET = 0.04
"""Seconds in which nobody looks: what is asked meanwhile would be in the task's way."""
MAX_REST = 2.0
"""Seconds between two tasks at most: whoever has rested has cold caches, and meets what is done
now and then."""
ROW = "x" * 300
"""About as long as a task."""


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit one task at a time, and read from its output when it started."""
    count = rig.sizes.latencies
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        sent = asyncio.run(_one_by_one(place, WARM + count))
        checks.all_done(dsn, WARM + count)
        started = _started(dsn)
        bare, commits = asyncio.run(_without_us(place, count))
    waits = [(began - at) * 1000 for (at, _), began in zip(sent, started, strict=True)][WARM:]
    if min(waits) < 0:
        raise checks.Wrong("a task started before it was submitted: the clock was set")
    answers = [took * 1000 for _, took in sent][WARM:]
    yield from _told(waits, answers)
    yield from _floor(bare, commits)


async def _one_by_one(place: Installation, count: int) -> list[tuple[float, float]]:
    """Return when each submit was sent, and how long its answer took."""
    requests = Requests(place.url, place.key)
    request = requests.post("/v1/tasks", DATE)
    sent, dice = [], random.Random(1)
    client = Client(requests.address, (b"201",))
    conn = await asyncpg.connect(place.dsn)
    try:
        for _ in range(count):
            await asyncio.sleep(_rest(dice))
            at = time.time()
            client.ask(request)
            sent.append((at, time.time() - at))
            await asyncio.sleep(QUIET)
            while await conn.fetchval("select exists (select from duly.live)"):
                await asyncio.sleep(LOOK)
    finally:
        client.socket.close()
        await conn.close()
    return sent


async def _without_us(place: Installation, count: int) -> tuple[list[float], list[float]]:
    """Return how long `date` takes to run, and a row to be on disk, each after the same rest."""
    bare, commits, dice = [], [], random.Random(1)
    conn = await asyncpg.connect(place.dsn)
    try:
        await conn.execute("create table public.bench_row (payload text)")
        for _ in range(count):
            await asyncio.sleep(QUIET + _rest(dice))
            at = time.time()
            bare.append(_date() - at)
            at = time.time()
            await conn.execute("insert into public.bench_row values ($1)", ROW)
            commits.append(time.time() - at)
        await conn.execute("drop table public.bench_row")
    finally:
        await conn.close()
    return bare, commits


def _rest(dice: random.Random) -> float:
    """Draw a rest: mostly short, at times long, in step with nothing that is periodic."""
    return dice.random() ** 3 * MAX_REST


def _date() -> float:
    """Start `date` with nothing but posix_spawn, and return when it ran, by its own word."""
    ours, its = os.pipe()
    streams = [(os.POSIX_SPAWN_DUP2, its, 1), (os.POSIX_SPAWN_CLOSE, ours)]
    command = DATE["command"]
    pid = os.posix_spawn(command[0], command, {}, file_actions=streams)
    os.close(its)
    with os.fdopen(ours, "rb") as output:
        said = output.read()
    os.waitpid(pid, 0)
    return float(said)


def _floor(bare: Sequence[float], commits: Sequence[float]) -> Iterator[Figure]:
    """Tell what two commits and the start of a program take here by themselves, one by one."""
    for name, found in (
        ("posix_spawn → process runs, without Duly, after the same rest", bare),
        ("a row sent → on disk, without Duly, after the same rest", commits),
    ):
        for share in (0.5, 0.99):
            yield Figure(
                part="latency",
                name=f"{name}, p{share * 100:.0f}",
                value=percentile(found, share) * 1000,
                unit="ms",
            )


def _told(waits: Sequence[float], answers: Sequence[float]) -> Iterator[Figure]:
    for share, bound in ((0.5, 6.0), (0.99, 15.0)):
        yield Figure(
            part="latency",
            name=f"submit sent → process runs, one at a time, p{share * 100:.0f}",
            value=percentile(waits, share),
            unit="ms",
            target=at_most(bound),
            note="as the process itself wrote down",
        )
    yield Figure(
        part="latency",
        name="submit sent → answered, one at a time, p50",
        value=percentile(answers, 0.5),
        unit="ms",
    )


def _started(dsn: str) -> list[float]:
    """Return when each task ran, by its own word, in the order of submission."""
    found = cluster.rows(dsn, "select log_tail from duly.attempts order by task_id")
    return [float(row[0].decode()) for row in found]
