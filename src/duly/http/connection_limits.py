"""Limits what an unauthenticated client can cost: the size and time of a head, connections, reads.

uvicorn buffers a head of any length and waits for one forever: a single endless header would fill
the memory, and idle connections would use up the open files. So the head is limited in size and
time, as is anything sent while no request is in progress, and so is the number of connections. A
client that does not read its response is disconnected too: the response would stay in memory
forever, and its request would keep its place in the load shedder.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duly.http.write_coalescing import CoalescingTransport

MAX_HEAD_BYTES = 64 * 1024
"""Without the body; one more read of the socket may come on top."""
HEAD_TIMEOUT_SECONDS = 20.0
"""Time for the head of a request, counted from the connection or the end of the last request."""
MIN_READ_RATE = 4096
"""Bytes per second at which a client must read a response once the write buffer is full."""
BODY_IS_COMPLETE = "duly.body_is_complete"
"""Set in the scope of a request that has arrived whole: its body is read without a timeout."""
ABORT_CONNECTION = "duly.abort_connection"
"""In the scope of every request: a function that closes its connection without another byte."""
HEAD_TOO_LARGE_RESPONSE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def max_connections() -> int:
    """Return the number of connections that leaves enough file descriptors for all other uses."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(files - max(files // 4, 64), 16)


class LimitedHttpProtocol(HttpToolsProtocol):
    """A connection with limits; pass the class to uvicorn as `http`."""

    client_timeout = HEAD_TIMEOUT_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = False
        self._has_advanced = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for a request, or abort if there are too many connections."""
        super().connection_made(CoalescingTransport(transport, self.loop))  # type: ignore[arg-type]
        if len(self.connections) > max_connections():
            transport.abort()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, and close the connection if the head is too large."""
        if self.transport.is_closing():
            return
        self._has_advanced = False
        super().data_received(data)
        self._head_bytes = 0 if self._has_advanced else self._head_bytes + len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.transport.write(HEAD_TOO_LARGE_RESPONSE)
            self.transport.close()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self.transport.get_protocol() is self:
            self._start_head_timer()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the websocket protocol."""
        self._stop_head_timer()
        self.transport = self.transport.bare  # type: ignore[attr-defined]
        super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: any client can cause it, and it advises to install unneeded packages."""

    def on_message_begin(self) -> None:
        """Start counting the bytes of the head."""
        self._has_advanced = self._is_in_head = True
        super().on_message_begin()
        self.scope[ABORT_CONNECTION] = self.transport.abort  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, but not a trailer, which arrives after the head was acted on.

        A proxy that checks or sets headers only does so in the head (RFC 9110, 6.5.1).
        """
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop counting the bytes of the head."""
        self._has_advanced = True
        self._is_in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass the body on; only bytes after its end count as a head."""
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        self.scope[BODY_IS_COMPLETE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the next request; without one, limit the time to read the response."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_head_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self._disconnect()

    def pause_writing(self) -> None:
        """Start measuring how fast the client reads: the write buffer is full."""
        super().pause_writing()
        self._start_read_timer()

    def resume_writing(self) -> None:
        """Stop measuring: the client has read nearly all of the response."""
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
        """Close the connection; abort it if the client would delay that by not reading."""
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
