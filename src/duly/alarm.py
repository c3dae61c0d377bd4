"""Waits for something to happen, but not for ever.

`asyncio.timeout` cancels whoever waits and catches that again, which takes several times as
long as the wait itself; and processes without work do little else than wait.
"""

import asyncio


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Return when `event` is set; after `seconds` it is set from here."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
