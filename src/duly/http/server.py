"""The HTTP server of our processes: uvicorn's, but asleep while nobody asks anything.

uvicorn looks ten times a second whether it is to end, and makes the date of the answers to
come. Here whoever ends it wakes it, and the date is made when there is an answer to date.
"""

import asyncio
from email.utils import formatdate
from types import FrameType

import uvicorn
from uvicorn.server import ServerState

from duly import clock

Headers = list[tuple[bytes, bytes]]


class DatedState(ServerState):
    """What connections share; the headers of every answer among them, with the date."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._config = config
        self._second = -1
        self._headers: Headers = []
        super().__init__()

    @property
    def default_headers(self) -> Headers:
        """Return the headers of an answer that is begun now."""
        second = int(clock.wall().timestamp())
        if second != self._second:
            date = [(b"date", formatdate(second, usegmt=True).encode())]
            self._headers = (
                date if self._config.date_header else []
            ) + self._config.encoded_headers
            self._second = second
        return self._headers

    @default_headers.setter
    def default_headers(self, _: Headers) -> None:
        """Leave it: what uvicorn would set at its start is made here."""


class HttpServer(uvicorn.Server):
    """Serves until `end` is called, or until a signal comes where it handles them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = DatedState(config)
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
        """Sleep until the end."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._ending.wait()
