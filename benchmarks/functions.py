"""Measures functions: how many a worker runs per second, and how soon one begins.

`duly up` and a worker with two processes run on the machine that is measured. A no-op function is
submitted a thousand at a time, or one by one; an end counts once it is committed.
"""

import asyncio
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

import duly
from benchmarks import installation, usage
from benchmarks.installation import DULY, Installation
from benchmarks.latency import MAX_IDLE_SECONDS, POLL_DELAY_SECONDS
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_least, at_most, percentile

APP = """
import time
from duly import App

app = App("bench")


@app.task
def noop() -> None:
    pass


@app.task
def now() -> float:
    return time.time()
"""
START_TIMEOUT_SECONDS = 30.0
NOOP = {"call": {"function": "bench_app:noop", "args": []}}
NOW = {"call": {"function": "bench_app:now", "args": []}}
MIN_REST_SECONDS = 0.2
SUBMITS_AT_ONCE = 32
WARM_UP_CALLS = 2000


def measure(rig: Rig) -> Iterator[Figure]:
    """Measure throughput, single submits, latency, and what an idle worker costs."""
    with (
        rig.store() as dsn,
        installation.up(rig.postgres, dsn) as instance,
        _worker(instance) as worker,
    ):
        yield from _idle(worker, rig.sizes.idle_seconds)
        _run_batches(instance, WARM_UP_CALLS)
        count = rig.sizes.plane
        rates = [count / _run_batches(instance, count) for _ in range(rig.sizes.rounds)]
        yield Figure(
            part="functions",
            name=f"{count:,} no-op functions, submit_many to the last durable end",
            value=statistics.median(rates),
            unit="/s",
            target=at_least(8000),
        )
        singles = rig.sizes.singles
        yield Figure(
            part="functions",
            name=f"no-op functions submitted one by one, {SUBMITS_AT_ONCE} at once",
            value=singles / asyncio.run(_submit_singles(instance, singles)),
            unit="/s",
            target=at_least(2500),
        )
        _await_ends(instance)
        delays = asyncio.run(_latencies(instance, rig.sizes.latencies))
        for share, bound in ((0.5, 5.0), (0.99, 15.0)):
            yield Figure(
                part="functions",
                name=f"submit sent → function runs, after a rest, p{share * 100:.0f}",
                value=percentile(delays, share) * 1000,
                unit="ms",
                target=at_most(bound),
            )


@contextmanager
def _worker(instance: Installation) -> Iterator[int]:
    """Run a worker with two processes, and yield its process id once it has joined."""
    with tempfile.TemporaryDirectory(prefix="worker-") as name:
        folder = Path(name)
        (folder / "bench_app.py").write_text(APP)
        (folder / "key").write_text(instance.key)
        flags = ["--url", instance.url, "--key-file", str(folder / "key"), "--processes", "2"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [DULY, "worker", "bench_app:app", *flags, "--data", str(folder / "data")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "HOME": name},
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + START_TIMEOUT_SECONDS
            while b"ready: " not in (folder / "log").read_bytes():
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"no worker:\n{(folder / 'log').read_text()}")
                time.sleep(0.02)
            yield process.pid
        finally:
            installation.stop(process)


def _idle(worker: int, seconds: float) -> Iterator[Figure]:
    """Yield the memory and CPU time of an idle worker with all its processes."""
    time.sleep(2.0)
    pids = [worker, *usage.descendants(worker)]
    yield Figure(
        part="functions",
        name="idle worker with two processes, proportional memory",
        value=sum(map(_proportional_memory, pids)) / 2**20,
        unit="MiB",
        target=at_most(60),
    )
    before = sum(map(_cpu_seconds, pids))
    time.sleep(seconds)
    yield Figure(
        part="functions",
        name="idle worker with two processes, share of a core",
        value=(sum(map(_cpu_seconds, pids)) - before) / seconds * 100,
        unit="%",
        target=at_most(0.3),
    )


def _proportional_memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line[:4] == "Pss:")


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of the main threads' processes, in nanosecond resolution."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _run_batches(instance: Installation, count: int) -> float:
    """Return the seconds from the first submit to the last end."""
    client = instance.client()
    began = time.monotonic()
    for _ in range(count // 1000):
        client.submit_many([NOOP] * 1000)
    _await_ends(instance)
    client.close()
    return time.monotonic() - began


def _await_ends(instance: Installation) -> None:
    """Wait until no task is live."""

    async def wait() -> None:
        conn = await asyncpg.connect(instance.dsn)
        try:
            while await conn.fetchval("select exists (select from duly.live)"):
                await asyncio.sleep(0.02)
        finally:
            await conn.close()

    asyncio.run(wait())


async def _submit_singles(instance: Installation, count: int) -> float:
    """Return the seconds in which one client submits `count` calls, each in its own request."""
    async with duly.AsyncClient(instance.url, instance.key) as client:
        left = iter(range(count))

        async def submit() -> None:
            for _ in left:
                await client.submit(**NOOP)

        began = time.monotonic()
        await asyncio.gather(*(submit() for _ in range(SUBMITS_AT_ONCE)))
        return time.monotonic() - began


async def _latencies(instance: Installation, count: int) -> list[float]:
    """Return the seconds from each submit to the begin of its function."""
    delays, rng = [], random.Random(1)
    async with duly.AsyncClient(instance.url, instance.key) as client:
        for _ in range(count):
            await asyncio.sleep(rng.uniform(MIN_REST_SECONDS, MAX_IDLE_SECONDS))
            at = time.time()
            task = await client.submit(**NOW)
            await asyncio.sleep(POLL_DELAY_SECONDS)
            await client.wait(task["id"], timeout=30)
            delays.append(await client.get_result(task["id"]) - at)
    return delays
