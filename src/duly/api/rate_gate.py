"""Refuses submits of tenants whose bucket is empty, before anything else is done for them.

Whoever is over its rate comes again at once, and again: what it costs to say no is then
what the server does all day. So it is said in front of everything, by what is known of the
caller from a moment ago, and in the words of a moment ago; and to few at a time, for what a
neighbour submits has to pass between two refusals. Nobody is held up for long: the more there
are, the more are let go at once.

Only what is certain is refused here. Repeats of an idempotency key are free, so whatever may
hold one, in any spelling, goes on as usual; and so does whoever is not known by heart.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from duly import clock
from duly.api import metrics
from duly.api.app import HEADERS
from duly.api.auth import bearer_in, may_submit
from duly.api.error_responses import STATUSES, retry_after
from duly.api.rate_headers import rate_headers
from duly.api.responses import ENCODER, JSON
from duly.api.shapes import ErrorAnswer, ErrorValue
from duly.errors import LimitExceeded
from duly.server.parts import Parts
from duly.server.rate_limiter import count_refused

PATHS = frozenset({"/v1/tasks", "/v1/jobs"})
FIELD = b"idempotency_key"
KEPT = 0.05
"""Seconds for which a refusal is told in the same words."""
BEAT = 0.001
"""Seconds from one time that refusals are let go to the next."""
AT_ONCE = 4
"""Refusals that are let go at a time, unless there are many more."""
LONGEST = 10
"""Beats in which everybody who is there is let go."""


class Refusal(msgspec.Struct, frozen=True):
    """An answer as it goes over the wire, without the headers that every connection adds."""

    head: bytes
    body: bytes
    until: float
    """When it is to be thought over, by this process's own clock."""


class Turnstile:
    """Where whoever is refused waits for its turn."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[bytes, Refusal] = {}
        self._held: deque[Callable[[], None]] = deque()
        self._counts: Counter[str] = Counter()

    def refusal(self, scope: Any) -> Refusal | None:
        """Return what to answer to a request, unless its body holds an idempotency key."""
        if self._parts.rate_limiter.is_calm or scope["path"] not in PATHS:
            return None
        if scope["method"] != "POST" or scope["query_string"]:
            return None
        shown: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"idempotency-key" or (name == b"authorization" and shown is not None):
                return None
            if name == b"authorization":
                shown = value
        if shown is None:
            return None
        known = self._known.get(shown)
        return self._consider(shown) if known is None or known.until < clock.monotonic() else known

    def _consider(self, shown: bytes) -> Refusal | None:
        self._known.pop(shown, None)
        bearer = bearer_in([(b"authorization", shown)])
        caller = None if bearer is None else self._parts.authenticator.recall(bearer)
        if caller is None or not may_submit(caller):
            return None
        error = self._parts.rate_limiter.refusal(caller)
        if not isinstance(error, LimitExceeded):
            return None
        kept = min(KEPT, error.retry_after.total_seconds())
        headers = {"retry-after": retry_after(error), **rate_headers(self._parts, caller)}
        self._known[shown] = known = _refusal(error, headers, clock.monotonic() + kept)
        return known

    def hold(self, path: str, let_go: Callable[[], None]) -> None:
        """Call `let_go` when it is the turn of whoever asked for `path`."""
        self._counts[path] += 1
        self._held.append(let_go)
        if len(self._held) == 1:
            self._wait()

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(BEAT, self._let_go)

    def _let_go(self) -> None:
        for path, count in self._counts.items():
            metrics.count("POST", path, STATUSES[LimitExceeded], count)
            count_refused(count)
        self._counts.clear()
        for _ in range(min(max(AT_ONCE, len(self._held) // LONGEST), len(self._held))):
            self._held.popleft()()
        if self._held:
            self._wait()
        else:
            # Keys are kept as they are, so only for as long as they are in use.
            self._known = {
                key: one for key, one in self._known.items() if one.until > clock.monotonic()
            }


def is_plain(body: bytes | bytearray) -> bool:
    """Say whether there is no idempotency key in a body.

    A field can be spelled in other ways, but not without a backslash.
    """
    return FIELD not in body and b"\\" not in body


def _refusal(error: LimitExceeded, headers: dict[str, str], until: float) -> Refusal:
    body = ENCODER.encode(ErrorAnswer(ErrorValue(error.code, error.message, error.details)))
    lines = [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode())]
    lines += [(name.encode(), value.encode()) for name, value in headers.items()]
    head = b"HTTP/1.1 %d Too Many Requests\r\n" % STATUSES[LimitExceeded]
    return Refusal(
        head + b"".join(b"%b: %b\r\n" % line for line in (*lines, *HEADERS)), body, until
    )
