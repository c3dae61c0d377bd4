"""Waits for an asyncio event with a timeout.

Decision: docs/adr/0011-idle-processes-sleep.md.
"""

import asyncio
import contextlib


async def wait_or_set(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`; a timer sets it after `seconds`.

    Cheaper than `asyncio.timeout`, which cancels the waiting task and catches the cancellation:
    that costs several times the wait itself, and idle processes do little else than wait.
    """
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for `event`, at most `seconds`; the timeout does not set it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
