"""A connection that refuses a request by itself where a gate says so, without a task for it.

It decides when all of a request has come in one piece, which small ones do. Whatever comes in
parts, or behind another request that is not answered yet, goes the way of all requests.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from duly.http.limits import LimitedHttpProtocol


class Refusal(NamedTuple):
    """A response as it goes over the wire, without the headers that every connection adds."""

    head: bytes
    body: bytes


class Gate(Protocol):
    """What an application offers as `gate` to be asked before it."""

    def refusal(self, scope: Any) -> Refusal | None:
        """Return the response to a request that may be refused."""

    def may_refuse(self, body: bytes | bytearray) -> bool:
        """Return True if nothing in the body keeps the request from being refused."""

    def hold(self, path: str, send: Callable[[], None]) -> None:
        """Call `send` when it is the turn of a refusal to be sent."""


class GatedHttpProtocol(LimitedHttpProtocol):
    """One connection of an application that has a gate."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gate: Gate = self.app.gate
        self._is_reading = False
        self._undecided: tuple[Refusal, RequestResponseCycle, Any] | None = None

    def data_received(self, data: bytes) -> None:
        """Take in what has come; refuse it, or begin to work on it."""
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
        is_odd = cycle.more_body or cycle.waiting_for_100_continue or self.flow.write_paused
        if is_odd or not self._gate.may_refuse(cycle.body):
            super()._start_asgi_task(cycle, app)
        else:
            self._gate.hold(cycle.scope["path"], partial(self._send, cycle, refusal))

    def _send(self, cycle: RequestResponseCycle, refusal: Refusal) -> None:
        """Send the refusal, and go on as after any other response."""
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
