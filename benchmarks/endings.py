"""Waits for tasks to end."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.checks import Wrong

LOOK = 0.01
"""Seconds between two looks; each costs PostgreSQL some microseconds."""
PATIENCE = 120.0


def await_empty(dsn: str) -> None:
    """Wait until no task is left that has not ended."""

    async def look() -> None:
        conn = await asyncpg.connect(dsn)
        try:
            await until(lambda: conn.fetchval("select not exists (select from duly.live)"))
        finally:
            await conn.close()

    asyncio.run(look())


async def until(condition: Callable[[], Awaitable[bool]], look: float = LOOK) -> None:
    """Wait until something is so, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > deadline:
            raise Wrong(f"tasks have not ended within {PATIENCE:g} s")
        await asyncio.sleep(look)
