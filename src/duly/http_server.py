"""The HTTP server of our processes: uvicorn's, but asleep while nobody asks anything.

uvicorn looks ten times a second whether it is to end. Here whoever ends it wakes it.
"""

import asyncio
import contextlib
from types import FrameType

import uvicorn

DATE = 1.0
"""Seconds for which the date in the answers' heads stays the same."""


class HttpServer(uvicorn.Server):
    """Serves until `end` is called, or until a signal comes where it handles them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Take no more requests, and let those that are under way end."""
        self.should_exit = True
        self._ending.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End because of a signal, which may interrupt anything."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Keep the date current until the end."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE):
                    await self._ending.wait()
