"""Waits for something to happen, but not for ever."""

import asyncio
import contextlib


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Return when `event` is set; after `seconds` it is set from here.

    `asyncio.timeout` cancels whoever waits and catches that again, which takes several times as
    long as the wait itself; and processes without work do little else than wait.
    """
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


async def wait_for(event: asyncio.Event, seconds: float | None) -> None:
    """Return when `event` is set, or after `seconds`; it is not set from here."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
