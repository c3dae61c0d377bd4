"""The control plane while somebody keeps a snapshot open: a report, a dump, a forgotten psql.

Whatever is deleted meanwhile cannot be cleared away, and stands in everybody's way.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import asyncpg

from benchmarks import installation
from benchmarks.plane import check, run_through
from benchmarks.rig import Rig
from benchmarks.stub import stub
from duly.bench.figure import Figure, at_least, median


def measure(rig: Rig) -> Iterator[Figure]:
    """Run tasks through for as long as the snapshot is held; compare the last with the first."""
    sizes, tasks = rig.sizes, rig.sizes.snapshot_round
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place, stub(place) as counts:

        def once() -> float:
            return run_through(place, counts, tasks, sizes.batch)

        once()
        before = [once() for _ in range(sizes.rounds)]
        after = asyncio.run(_held(dsn, once, sizes.rounds, sizes.snapshot_seconds))
        check(dsn, counts, (1 + len(before) + len(after)) * tasks)
    yield Figure(
        part="snapshot",
        name=f"control plane with a snapshot held for {_span(sizes.snapshot_seconds)}",
        value=median(after[-sizes.rounds :]),
        unit="/s",
        limit=median(before),
        against="the same before",
        target=at_least(0.7),
        note=f"{len(after) * tasks:,} tasks ended meanwhile",
    )


async def _held(dsn: str, once: Callable[[], float], rounds: int, seconds: float) -> list[float]:
    """Return the rates of all rounds from when the snapshot was taken."""
    conn = await asyncpg.connect(dsn)
    try:
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            await conn.fetchval("select count(*) from duly.live")
            until, rates = time.monotonic() + seconds, list[float]()
            while len(rates) < rounds or time.monotonic() < until:
                rates.append(await asyncio.to_thread(once))
            return rates
    finally:
        await conn.close()


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
