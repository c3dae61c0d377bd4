"""Measures the control plane while a transaction holds a snapshot: a report, a dump, an idle psql.

Whatever is deleted meanwhile cannot be cleared away, and stands in everybody's way. A snapshot
holds up only the database that it is of, so a store without one can stand beside it.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from benchmarks.paired_comparison import BY_STUB, Side, compare, told
from benchmarks.rig import Rig
from duly.bench.figure import Figure


def measure(rig: Rig) -> Iterator[Figure]:
    """Run tasks through while a snapshot is held; then compare with an empty store, in turns."""
    sizes, ended = rig.sizes, 0

    async def wear(side: Side) -> None:
        nonlocal ended
        until = time.monotonic() + sizes.snapshot_seconds
        while time.monotonic() < until:
            ended += (await side.turn(sizes.turn)).ended

    with rig.store() as empty, rig.store() as held, _snapshot(held):
        compared = compare(rig, BY_STUB, empty, held, wear)
    name = f"{BY_STUB} with a snapshot held for {_span(sizes.snapshot_seconds)}"
    name += f" in which {ended:,} tasks ended"
    yield from told("snapshot", name, compared, "an empty store", 0.7)


@contextmanager
def _snapshot(dsn: str) -> Iterator[None]:
    """Keep a snapshot of a store for as long as the block lasts."""
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(dsn))
        try:
            runner.run(conn.execute("begin isolation level repeatable read, read only"))
            runner.run(conn.execute("select count(*) from duly.live"))
            yield
            # It has failed unless the snapshot was held to the end.
            runner.run(conn.execute("commit"))
        finally:
            runner.run(conn.close())


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
