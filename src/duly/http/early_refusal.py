"""Refuses requests in the protocol layer, without starting an asyncio task for them.

The application's gate decides. Only a request that arrives in one read is refused here, as small
ones do; a request that arrives in parts, or pipelined behind an unfinished one, takes the ordinary
path.

Decision: docs/adr/0016-one-http-path.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from duly.http.connection_limits import LimitedHttpProtocol


class Refusal(NamedTuple):
    """An encoded response, without the headers that the connection adds."""

    head: bytes
    body: bytes


class RefusalGate(Protocol):
    """Decides which requests are refused; an application offers it as `gate`."""

    def refusal(self, scope: Any) -> Refusal | None:
        """Return the response to a request to be refused, judging by its head."""

    def may_refuse(self, body: bytes | bytearray) -> bool:
        """Return True if the body does not exempt the request from refusal."""

    def enqueue(self, path: str, send: Callable[[], None]) -> None:
        """Queue a refusal; `send` is called when it is to be sent."""


class GatedHttpProtocol(LimitedHttpProtocol):
    """A connection of an application that has a gate."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gate: RefusalGate = self.app.gate
        self._is_reading = False
        self._undecided: tuple[Refusal, RequestResponseCycle, Any] | None = None

    def data_received(self, data: bytes) -> None:
        """Parse the data; refuse the request in it or start its task."""
        self._is_reading = True
        try:
            super().data_received(data)
        finally:
            self._is_reading = False
            undecided, self._undecided = self._undecided, None
        if undecided is not None and not self.transport.is_closing():
            self._decide(*undecided)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        refusal = self._gate.refusal(cycle.scope) if self._is_reading else None
        if refusal is None:
            super()._start_asgi_task(cycle, app)
        else:
            self._undecided = refusal, cycle, app

    def _decide(self, refusal: Refusal, cycle: RequestResponseCycle, app: Any) -> None:
        is_incomplete = cycle.more_body or cycle.waiting_for_100_continue
        if is_incomplete or self.flow.write_paused or not self._gate.may_refuse(cycle.body):
            super()._start_asgi_task(cycle, app)
        else:
            self._gate.enqueue(cycle.scope["path"], partial(self._send, cycle, refusal))

    def _send(self, cycle: RequestResponseCycle, refusal: Refusal) -> None:
        """Send the refusal, and continue as after any other response."""
        if cycle.disconnected or self.transport.is_closing():
            return
        lines = [b"%b: %b\r\n" % line for line in cycle.default_headers]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        self.transport.write(b"".join([refusal.head, *lines, b"\r\n", refusal.body]))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
