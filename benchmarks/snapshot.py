"""The control plane while somebody keeps a snapshot open: a report, a dump, a forgotten psql.

Whatever is deleted meanwhile cannot be cleared away, and stands in everybody's way.
"""

import asyncio
import time
from collections.abc import Iterator

import asyncpg

from benchmarks import installation
from benchmarks.plane import WARM, check, run_through
from benchmarks.rig import Rig
from benchmarks.stub import Counts, stub
from duly.bench.figure import Figure, at_least, median


def measure(rig: Rig) -> Iterator[Figure]:
    """Run tasks through for as long as the snapshot is held; compare the last with the first."""
    sizes = rig.sizes
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place, stub(place) as counts:
        warm = min(WARM, sizes.plane)
        run_through(place, counts, warm, sizes.batch)
        before = [run_through(place, counts, sizes.plane, sizes.batch) for _ in range(sizes.rounds)]
        after = asyncio.run(_held(dsn, rig, place, counts))
        check(dsn, counts, warm + (len(before) + len(after)) * sizes.plane)
    yield Figure(
        part="snapshot",
        name=f"control plane with a snapshot held for {_span(sizes.snapshot_seconds)}",
        value=median(after[-sizes.rounds :]),
        unit="/s",
        limit=median(before),
        against="the same before",
        target=at_least(0.7),
        note=f"{len(after) * sizes.plane:,} tasks ended meanwhile",
    )


async def _held(
    dsn: str, rig: Rig, place: installation.Installation, counts: Counts
) -> list[float]:
    """Return the rates of all rounds from when the snapshot was taken."""
    sizes = rig.sizes
    conn = await asyncpg.connect(dsn)
    try:
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            await conn.fetchval("select count(*) from duly.live")
            until, rates = time.monotonic() + sizes.snapshot_seconds, list[float]()
            while len(rates) < sizes.rounds or time.monotonic() < until:
                rates.append(
                    await asyncio.to_thread(run_through, place, counts, sizes.plane, sizes.batch)
                )
            return rates
    finally:
        await conn.close()


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
