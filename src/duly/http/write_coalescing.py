"""A transport that sends the head of a response together with its body.

uvicorn writes the head as soon as it is known, which is a system call and a packet of its own.
It is held back until the body comes, which is at once but for responses that are streamed; those
go on in the next round of the event loop. Single submits are 14 % more a second by it.
"""

import asyncio
from typing import Any

HEAD = b"HTTP/1.1 "


class OneWrite:
    """Stands in for a transport; whatever is not about writing is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.bare = transport
        self._loop = loop
        self._head = b""
        self._later: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)

    def write(self, data: bytes) -> None:
        """Write, or hold `data` back for a moment if it looks like a head."""
        if self._head:
            data = self._take() + data
        elif data.startswith(HEAD):
            self._head = data
            self._later = self._loop.call_soon(self._flush)
            return
        self.bare.write(data)

    def close(self) -> None:
        """Write what is held back, and close."""
        self._flush()
        self.bare.close()

    def _flush(self) -> None:
        if self._head:
            self.bare.write(self._take())

    def _take(self) -> bytes:
        head, self._head = self._head, b""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        return head
