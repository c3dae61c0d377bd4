"""Waits for tasks to end."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.checks import Wrong

LOOK = 0.01
"""Seconds between two looks; each costs PostgreSQL some microseconds."""
LONGEST = 0.25
PATIENCE = 120.0


def await_empty(dsn: str) -> None:
    """Wait until no task is left that has not ended.

    Who looks a hundred times a second takes three percent of two processors from what is
    measured. So most looks are at the end: each halves the time that seems to be left.
    """

    async def look() -> None:
        conn = await asyncpg.connect(dsn)
        began, at_first = time.monotonic(), None
        try:
            while left := await conn.fetchval("select count(*) from duly.live"):
                at_first = left if at_first is None else at_first
                passed = time.monotonic() - began
                if passed > PATIENCE:
                    raise Wrong(f"{left} tasks have not ended within {PATIENCE:g} s")
                await asyncio.sleep(next_look(passed, at_first - left, left))
        finally:
            await conn.close()

    asyncio.run(look())


def next_look(passed: float, ended: int, left: int) -> float:
    """Return the seconds until half of what is left should have ended, within bounds."""
    if ended <= 0:
        return LOOK
    return min(max(LOOK, passed * left / ended / 2), LONGEST)


async def until(condition: Callable[[], Awaitable[bool]], look: float = LOOK) -> None:
    """Wait until something is so, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > deadline:
            raise Wrong(f"tasks have not ended within {PATIENCE:g} s")
        await asyncio.sleep(look)
