"""What a client may cost before anybody knows who it is.

The HTTP server as it comes keeps the head of a request of any length, and waits for one for ever:
a single header without end would fill the memory and stop everything else, and idle connections
would use up the open files. So the head is bounded in size and in time, and with it all that is
sent while no request is being worked on; and so are the connections in number. A client that
asks and does not read the response is cut off too: the response would be kept for ever, and with
it the room of the request.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duly.http.one_write import OneWrite

MAX_HEAD_BYTES = 64 * 1024
"""Bytes without any of a body; one more read of the socket may come on top."""
CLIENT_TIMEOUT_SECONDS = 20.0
"""What a client has for the head of a request, from when it has connected or begun."""
MIN_READ_RATE = 4096
"""Bytes a second of a response that a client takes at least, once more is written than fits."""
BODY_IS_COMPLETE = "duly.body_is_complete"
"""In the scope of a request of which all has come: its body is read without a timeout for it."""
HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def max_connections() -> int:
    """Return how many connections leave enough open files for everything else."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(files - max(files // 4, 64), 16)


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection; give it to uvicorn as `http`."""

    client_timeout = CLIENT_TIMEOUT_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = False
        self._has_advanced = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, unless there are too many connections."""
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        if len(self.connections) > max_connections():
            transport.abort()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what has come, unless it is too much or too slow."""
        if self.transport.is_closing():
            return
        self._has_advanced = False
        super().data_received(data)
        self._head_bytes = 0 if self._has_advanced else self._head_bytes + len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self.transport.get_protocol() is self:
            self._start_head_timer()

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to the websocket."""
        self._stop_head_timer()
        self.transport = self.transport.bare  # type: ignore[attr-defined]
        super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody can cause it, and it has operators install what is not needed."""

    def on_message_begin(self) -> None:
        """Count the head from here on."""
        self._has_advanced = self._is_in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, unless it is a trailer: it comes after the head was acted on.

        A proxy that checks or sets headers does so in the head alone (RFC 9110, 6.5.1).
        """
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Count no further: this was the head."""
        self._has_advanced = True
        self._is_in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Leave the body to its reader; what follows the last of it is counted."""
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that all of the request is here."""
        self.scope[BODY_IS_COMPLETE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on to the next request; if none is to come, the client has to take this response."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_head_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing more is asked."""
        self._disconnect()

    def pause_writing(self) -> None:
        """Begin to measure how fast the client reads: more is written than fits."""
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        """Stop measuring: the client has read nearly all of it."""
        self._stop_read_timer()
        super().resume_writing()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.client_timeout, self._disconnect)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _disconnect(self) -> None:
        """Close; but a client that has not even read its response would hold that up for ever."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _start_read_timer(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self.client_timeout, self._check_read, unread)

    def _check_read(self, unread_before: int) -> None:
        read = unread_before - self.transport.get_write_buffer_size()
        if read < MIN_READ_RATE * self.client_timeout:
            self.transport.abort()
        else:
            self._start_read_timer()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
