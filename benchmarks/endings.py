"""Waits for tasks to end, and says how fast they did, by what the store has recorded."""

import asyncio
import time
from datetime import datetime

import asyncpg

from benchmarks import cluster
from benchmarks.checks import Wrong

LOOK = 0.01
"""Seconds between two looks; each costs PostgreSQL some microseconds."""
PATIENCE = 120.0
RATE = """
select count(*) as counted, extract(epoch from max(finished_at) - min(finished_at)) as seconds
  from (select finished_at
          from duly.attempts
         where finished_at > $1
           and outcome = 'succeeded'
         order by finished_at
        offset $2
         limit $3) as ended
"""


def now(dsn: str) -> datetime:
    """Return what time it is in PostgreSQL."""
    found: datetime = cluster.value(dsn, "select clock_timestamp()")
    return found


def await_empty(dsn: str) -> None:
    """Wait until no task is left that has not ended."""
    asyncio.run(_await(dsn, "select not exists (select from duly.live)"))


def await_leases(dsn: str, count: int) -> None:
    """Wait until so many attempts were leased, ever: they end soon after."""
    asyncio.run(_await(dsn, f"select last_value >= {count} from duly.tokens"))


def best_rate(dsn: str, since: datetime, count: int, spans: int) -> float:
    """Return how many tasks a second ended since then, `count` after `count`, in the best span.

    What else goes on in the machine can only make it slower. The first tenth is left out: a
    server that has just started has plans to make.
    """
    early = count // 10
    firsts = [early, *range(count, spans * count, count)]
    return max(_rate(dsn, since, first, count - first % count) for first in firsts)


def _rate(dsn: str, since: datetime, first: int, count: int) -> float:
    found = cluster.rows(dsn, RATE, since, first, count)[0]
    if found["counted"] < count:
        ended = first + found["counted"]
        raise Wrong(f"only {ended:,} of {first + count:,} tasks have ended")
    return float(found["counted"] - 1) / float(found["seconds"])


async def _await(dsn: str, condition: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        until = time.monotonic() + PATIENCE
        while not await conn.fetchval(condition):
            if time.monotonic() > until:
                raise Wrong(f"tasks have not ended within {PATIENCE:g} s")
            await asyncio.sleep(LOOK)
    finally:
        await conn.close()
