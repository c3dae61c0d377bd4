"""Refuses submits of tenants whose bucket is empty, before anything else is done for them.

A client over its rate comes again at once, and again: what it costs to say no is then what the
server does all day. So it is said below ASGI (`duly.http.gate`), by what is known of the caller
from a moment ago and in the words of a moment ago; and a few refusals at a time, because what a
neighbour submits has to pass between two of them. None is held for long: the more there are, the
more are sent at once.

Only what is certain is refused here. Repeats of an idempotency key are free, so whatever may
hold one, in any spelling, goes on as usual; and so does a caller whose key is not cached.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from duly import clock
from duly.api import metrics
from duly.api.app import HEADERS
from duly.api.auth import bearer_in, may_submit
from duly.api.error_responses import STATUSES, retry_after
from duly.api.rate_headers import rate_headers
from duly.api.responses import ENCODER, JSON
from duly.api.shapes import ErrorAnswer, ErrorValue
from duly.errors import LimitExceeded
from duly.http.gate import Refusal
from duly.server.parts import Parts
from duly.server.rate_limiter import count_refused

PATHS = frozenset({"/v1/tasks", "/v1/jobs"})
KEY_FIELD = b"idempotency_key"
MAX_REUSE_SECONDS = 0.05
"""How long a refusal is repeated in the same words."""
SEND_INTERVAL_SECONDS = 0.001
MIN_SENT_AT_ONCE = 4
"""Refusals that are sent at a time, unless there are many more."""
MAX_INTERVALS = 10
"""Within so many intervals all refusals are sent that are held."""


class Known(NamedTuple):
    """What a caller is told, until it is considered again."""

    refusal: Refusal
    until: float
    """By this process's own clock."""


class RateGate:
    """Decides which submits are refused, and when each refusal is sent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[bytes, Known] = {}
        self._held: deque[Callable[[], None]] = deque()
        self._counts: Counter[str] = Counter()

    def refusal(self, scope: Any) -> Refusal | None:
        """Return what to answer to a request, unless its body holds an idempotency key."""
        if self._parts.rate_limiter.is_calm or scope["path"] not in PATHS:
            return None
        if scope["method"] != "POST" or scope["query_string"]:
            return None
        authorization: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"idempotency-key" or (name == b"authorization" and authorization):
                return None
            if name == b"authorization":
                authorization = value
        if not authorization:
            return None
        known = self._known.get(authorization)
        if known is None or known.until < clock.monotonic():
            known = self._consider(authorization)
        return None if known is None else known.refusal

    def may_refuse(self, body: bytes | bytearray) -> bool:
        """Return True if there is no idempotency key in the body.

        A field can be spelled in other ways, but not without a backslash.
        """
        return KEY_FIELD not in body and b"\\" not in body

    def hold(self, path: str, send: Callable[[], None]) -> None:
        """Call `send` when it is the turn of this refusal."""
        self._counts[path] += 1
        self._held.append(send)
        if len(self._held) == 1:
            self._send_later()

    def _consider(self, authorization: bytes) -> Known | None:
        self._known.pop(authorization, None)
        bearer = bearer_in([(b"authorization", authorization)])
        caller = None if bearer is None else self._parts.authenticator.recall(bearer)
        if caller is None or not may_submit(caller):
            return None
        error = self._parts.rate_limiter.refusal(caller)
        if not isinstance(error, LimitExceeded):
            return None
        headers = {"retry-after": retry_after(error), **rate_headers(self._parts, caller)}
        reuse = min(MAX_REUSE_SECONDS, error.retry_after.total_seconds())
        known = Known(_written(error, headers), clock.monotonic() + reuse)
        self._known[authorization] = known
        return known

    def _send_later(self) -> None:
        asyncio.get_running_loop().call_later(SEND_INTERVAL_SECONDS, self._send_some)

    def _send_some(self) -> None:
        for path, count in self._counts.items():
            metrics.count("POST", path, STATUSES[LimitExceeded], count)
            count_refused(count)
        self._counts.clear()
        count = max(MIN_SENT_AT_ONCE, len(self._held) // MAX_INTERVALS)
        for _ in range(min(count, len(self._held))):
            self._held.popleft()()
        if self._held:
            self._send_later()
        else:
            # Keys are held in clear, so only for as long as they are in use.
            now = clock.monotonic()
            self._known = {key: known for key, known in self._known.items() if known.until > now}


def _written(error: LimitExceeded, headers: dict[str, str]) -> Refusal:
    body = ENCODER.encode(ErrorAnswer(ErrorValue(error.code, error.message, error.details)))
    fields = {"content-type": JSON, "content-length": str(len(body)), **headers}
    lines = [(name.encode(), value.encode()) for name, value in fields.items()]
    head = b"HTTP/1.1 %d Too Many Requests\r\n" % STATUSES[LimitExceeded]
    return Refusal(head + b"".join(b"%b: %b\r\n" % line for line in (*lines, *HEADERS)), body)
