"""A uvicorn server that sleeps while there are no requests.

uvicorn wakes up ten times per second to check for shutdown and to refresh the Date header. Here an
event ends the server, and the Date header is made when a response needs it.

Decision: docs/adr/0011-idle-processes-sleep.md.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import uvicorn
from uvicorn.server import ServerState

from duly import clock

Headers = list[tuple[bytes, bytes]]


class DatedState(ServerState):
    """The state shared by all connections, with a Date header made on demand."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._config = config
        self._second = -1
        self._headers: Headers = []
        super().__init__()

    @property
    def default_headers(self) -> Headers:
        """Return the headers of a response that starts now; the date is cached for its second."""
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
        """Ignore the headers that uvicorn sets at startup."""


class HttpServer(uvicorn.Server):
    """Serves until `stop` is called; it handles no signals, which `launch/signals.py` does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = DatedState(config)
        self._ending = asyncio.Event()

    def stop(self) -> None:
        """Accept no more requests, and finish those in progress."""
        self.should_exit = True
        self._ending.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def main_loop(self) -> None:
        """Sleep until shutdown."""
        if not self.should_exit:
            await self._ending.wait()
