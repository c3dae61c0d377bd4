"""Waits for something to happen, but not for ever.

`asyncio.timeout` cancels whoever waits and catches that again, which takes several times as
long as the wait itself; and processes without work do little else than wait.
"""

import asyncio
from collections.abc import Callable


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Return when `event` is set; after `seconds` it is set from here."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


class Deadline:
    """A time by which something has to happen, set and called off with every request.

    The timer below is not touched by that: it looks at the time when it rings, and is set again
    if there is more of it. A busy connection would start and stop thousands of timers otherwise.
    """

    __slots__ = ("_at", "_loop", "_ring", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], object]) -> None:
        self._loop = loop
        self._ring = ring
        self._at: float | None = None
        self._rings_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Say whether it is waited for."""
        return self._at is not None

    def set(self, seconds: float) -> None:
        """Ring after `seconds`, unless it is called off or put off before."""
        self._at = self._loop.time() + seconds
        if self._timer is not None and self._rings_at > self._at:
            self.close()
        if self._timer is None:
            self._start(self._at)

    def call_off(self) -> None:
        """Do not ring."""
        self._at = None

    def close(self) -> None:
        """Leave no timer behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, at: float) -> None:
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._at > self._loop.time():
            self._start(self._at)
        else:
            self._at = None
            self._ring()
