"""What a client may cost before anybody knows who it is.

The HTTP server as it comes keeps the head of a request of any length, and waits for
one for ever: a single header without end would fill the memory and stop everything
else, and idle connections would use up the open files. So the head is bounded in size
and in time, and with it all that is sent when no request is being worked on; and so are
the connections in number. Whoever asks and does not read the answer is cut off too: it
would be kept for ever, and with it the room of the request.
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duly.alarm import Deadline
from duly.one_write import OneWrite

LONGEST_HEAD = 64 * 1024
"""Bytes without any of a body; one more read of the socket may come on top."""
PATIENCE = 20.0
"""Seconds that a client has for the head of a request, from when it has connected or begun."""
SLOWEST = 4096
"""Bytes a second of an answer that a client takes at least, once more is written than fits."""
WHOLE = "duly.whole"
"""In the scope of a request of which all has come."""
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def most_connections() -> int:
    """Return how many connections leave enough open files for everything else."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(files - max(files // 4, 64), 16)


class LimitedHttp(HttpToolsProtocol):
    """One connection; give it to uvicorn as `http`."""

    patience = PATIENCE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = 0
        self._in_head = False
        self._got_on = False
        self._deadline = Deadline(self.loop, self._give_up)
        self._rests = False
        self._taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, unless there are too many who do."""
        self._bare = transport
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        if len(self.connections) > most_connections():
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._deadline.close()
        self._stop_looking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what has come, unless it is too much or too slow."""
        if self._bare.is_closing():
            return
        self._got_on = False
        super().data_received(data)
        self._head = 0 if self._got_on else self._head + len(data)
        if self._head > LONGEST_HEAD:
            self.transport.write(REFUSAL)
            self.transport.close()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._deadline.call_off()
        elif self.transport.get_protocol() is self:
            self._watch()

    def handle_websocket_upgrade(self) -> None:
        """Leave the connection to the websocket."""
        self._deadline.call_off()
        self.transport = self._bare
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        """Count the head from here on."""
        self._got_on = self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, unless it is a trailer: it comes after the head was acted on.

        A proxy that checks or sets headers does so in the head alone (RFC 9110, 6.5.1).
        """
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Count no further: this was the head."""
        self._got_on = True
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that all of the request is here: nobody has to wait for any more of it."""
        self.scope[WHOLE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        """Leave the body to its reader; what follows the last of it is counted."""
        self._got_on = True
        super().on_body(body)

    def pause_writing(self) -> None:
        """Begin to look how fast the client takes its answer: more is written than fits."""
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        """Stop looking: it has taken nearly all of it."""
        self._stop_looking()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Go on to the next request; if there is none to come, the client has to take this one.

        As uvicorn does it, but without a timer for each answer (`Deadline`).
        """
        self.server_state.total_requests += 1
        if self._bare.is_closing():
            self._watch()
            return
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._rests = True
            self._deadline.set(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Have all the time for a request again: something is asked."""
        if self._rests:
            self._rests = False
            self._deadline.call_off()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody could fill the log with it."""

    def _watch(self) -> None:
        if not self._deadline.is_set:
            self._deadline.set(self.patience)

    def _give_up(self) -> None:
        """Close; but a client that has not even read its answer would hold that up for ever."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _look_later(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(self.patience, self._look, left)

    def _look(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < SLOWEST * self.patience:
            self.transport.abort()
        else:
            self._look_later()

    def _stop_looking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
