"""Measures the control plane while a transaction holds a snapshot: a report, a dump, an idle psql.

Rows that are deleted meanwhile cannot be vacuumed, and every scan has to skip them. A snapshot
affects only its own database, so a store without one can be measured beside it.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from benchmarks.paired_comparison import CONTROL_PLANE, Side, compare, figures
from benchmarks.rig import Rig
from duly.bench.figure import Figure


def measure(rig: Rig) -> Iterator[Figure]:
    """Run tasks while a snapshot is held, then compare with an empty store, in turns."""
    sizes, ended = rig.sizes, 0

    async def wear(side: Side) -> None:
        nonlocal ended
        deadline = time.monotonic() + sizes.snapshot_seconds
        while time.monotonic() < deadline:
            ended += (await side.turn(sizes.turn)).ended

    with rig.store() as empty, rig.store() as worn, _snapshot(worn):
        comparison = compare(rig, CONTROL_PLANE, empty, worn, wear)
    name = f"{CONTROL_PLANE} with a snapshot held for {_duration(sizes.snapshot_seconds)}"
    name += f" in which {ended:,} tasks ended"
    yield from figures("snapshot", name, comparison, "an empty store", 0.7)


@contextmanager
def _snapshot(dsn: str) -> Iterator[None]:
    """Hold a snapshot of a store for the duration of the block."""
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(dsn))
        try:
            runner.run(conn.execute("begin isolation level repeatable read, read only"))
            runner.run(conn.execute("select count(*) from duly.live"))
            yield
            # Fails if the connection, and with it the snapshot, was lost meanwhile.
            runner.run(conn.execute("commit"))
        finally:
            runner.run(conn.close())


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
