"""Waits until all tasks have ended, or until another condition holds."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.checks import CheckFailed
from benchmarks.polling import MIN_INTERVAL_SECONDS, next_interval

TIMEOUT_SECONDS = 120.0


def await_empty(dsn: str) -> None:
    """Wait until every task has ended.

    A hundred polls a second would take more than two percent of two cores. So the interval is
    half of the estimated remaining time, and most polls happen near the end.
    """

    async def poll() -> None:
        conn = await asyncpg.connect(dsn)
        began, initial = time.monotonic(), None
        try:
            while remaining := await conn.fetchval("select count(*) from duly.live"):
                initial = remaining if initial is None else initial
                elapsed = time.monotonic() - began
                if elapsed > TIMEOUT_SECONDS:
                    raise CheckFailed(
                        f"{remaining} tasks have not ended within {TIMEOUT_SECONDS:g} s"
                    )
                await asyncio.sleep(next_interval(elapsed, initial - remaining, remaining))
        finally:
            await conn.close()

    asyncio.run(poll())


async def until(
    condition: Callable[[], Awaitable[bool]], interval: float = MIN_INTERVAL_SECONDS
) -> None:
    """Poll until `condition` is true; raises CheckFailed after TIMEOUT_SECONDS."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            raise CheckFailed(f"tasks have not ended within {TIMEOUT_SECONDS:g} s")
        await asyncio.sleep(interval)
