"""Waits until all tasks have ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.checks import Wrong
from benchmarks.polling import LOOK, next_look

PATIENCE = 120.0


def await_empty(dsn: str) -> None:
    """Wait until no task is left that has not ended.

    Who looks a hundred times a second takes more than two percent of what two
    processors can do. So most looks are at the end: each halves the time that seems to be left.
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


async def until(condition: Callable[[], Awaitable[bool]], look: float = LOOK) -> None:
    """Wait until something is so, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > deadline:
            raise Wrong(f"tasks have not ended within {PATIENCE:g} s")
        await asyncio.sleep(look)
