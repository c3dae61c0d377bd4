"""Bounds how long a request waits for the database.

A read that takes too long is cancelled. A write is not: cancelling a commit that waits
for its standby leaves a row that is visible but not replicated. So the write goes on in
the background, on the connections of client requests, and the client gets an error that
says that the outcome is unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from duly.errors import Unavailable

T = TypeVar("T")
TOO_SLOW = "The database did not answer in time. Try again."
OUTCOME_UNKNOWN = (
    "The database did not answer in time, so it is not known whether the request was applied. "
    "Check before you repeat it, or repeat it with the same Idempotency-Key."
)


class Timeouts:
    """Applies the request timeout to reads and writes."""

    def __init__(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()
        self._pending_writes: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Cancel the block when the timeout is over; it must not write."""
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise Unavailable(TOO_SLOW) from None

    async def writing(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Return the result of `work`, or raise Unavailable after the timeout and let it go on."""
        task = asyncio.create_task(work)
        self._pending_writes.add(task)
        task.add_done_callback(self._on_done)
        done, _ = await asyncio.wait((task,), timeout=seconds or self._seconds)
        if not done:
            raise Unavailable(OUTCOME_UNKNOWN)
        return task.result()

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._pending_writes.discard(task)
        if not task.cancelled():
            # Retrieved, or asyncio logs it as unhandled if the request has timed out.
            task.exception()

    async def close(self, within: float) -> None:
        """Wait for pending writes, at most `within` seconds."""
        if self._pending_writes:
            await asyncio.wait(set(self._pending_writes), timeout=within)
