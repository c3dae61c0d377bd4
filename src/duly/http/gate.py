"""A connection that answers what the turnstile refuses by itself, without a task for it.

It decides when all of a request has come in one piece, which small ones do. Whatever comes in
parts, or behind another request that is not answered yet, goes the way of all requests.
"""

from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from duly.api.rate_gate import Refusal, Turnstile, is_plain
from duly.http.limits import LimitedHttp


class RefusingHttp(LimitedHttp):
    """One connection; the application has the turnstile."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turnstile: Turnstile | None = getattr(self.app, "turnstile", None)
        self._reading = False
        self._undecided: tuple[Refusal, RequestResponseCycle, Any] | None = None

    def data_received(self, data: bytes) -> None:
        """Take in what has come; refuse it, or begin to work on it."""
        self._reading = True
        try:
            super().data_received(data)
        finally:
            self._reading = False
            undecided, self._undecided = self._undecided, None
        if undecided is not None and not self.transport.is_closing():
            self._decide(*undecided)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        refusal = None
        if self._reading and self._turnstile is not None:
            refusal = self._turnstile.refusal(cycle.scope)
        if refusal is None:
            super()._start_asgi_task(cycle, app)
        else:
            self._undecided = refusal, cycle, app

    def _decide(self, refusal: Refusal, cycle: RequestResponseCycle, app: Any) -> None:
        is_odd = cycle.more_body or cycle.waiting_for_100_continue or self.flow.write_paused
        if self._turnstile is None or is_odd or not is_plain(cycle.body):
            super()._start_asgi_task(cycle, app)
        else:
            self._turnstile.hold(cycle.scope["path"], partial(self._answer, cycle, refusal))

    def _answer(self, cycle: RequestResponseCycle, refusal: Refusal) -> None:
        """Send the refusal, and go on as after any other answer."""
        if cycle.disconnected or self.transport.is_closing():
            return
        self._write(cycle, refusal.head, refusal.body)

    def _write(self, cycle: RequestResponseCycle, head: bytes, body: bytes) -> None:
        lines = [b"%b: %b\r\n" % line for line in cycle.default_headers]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        self._bare.write(b"".join([head, *lines, b"\r\n", body]))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
