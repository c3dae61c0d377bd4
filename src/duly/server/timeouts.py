"""How long a client is kept waiting for the database, and what becomes of its request then.

A read that takes too long is broken off. A write is not: breaking off a commit that
waits for its standby leaves a row that counts as committed and is not safe. So a
write goes on by itself, in the connections that clients have, and its client is told
that the outcome is not known.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from duly.errors import Unavailable

T = TypeVar("T")
TOO_SLOW = "The database takes too long to answer; try again."
UNKNOWN = (
    "The database did not answer in time, so it is not known whether this was done. "
    "Look first, then repeat it; with an Idempotency-Key it can be repeated at once."
)


class Timeouts:
    """Gives reads and writes of clients their time."""

    def __init__(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()
        self._open: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Break off what the block does when its time is over; it must not write."""
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise Unavailable(TOO_SLOW) from None

    async def writing(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Return what `work` returns, or raise Unavailable and let it end by itself."""
        task = asyncio.create_task(work)
        self._open.add(task)
        task.add_done_callback(self._end)
        done, _ = await asyncio.wait((task,), timeout=seconds or self._seconds)
        if not done:
            raise Unavailable(UNKNOWN)
        return task.result()

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._open.discard(task)
        if not task.cancelled():
            # Looked at, so that nobody complains: whoever asked may be gone by now.
            task.exception()

    async def close(self, within: float) -> None:
        """Wait for the writes that are still under way, but not for ever."""
        if self._open:
            await asyncio.wait(set(self._open), timeout=within)
