"""Refuses submissions of rate-limited tenants below ASGI, before they cost anything.

A client over its rate retries at once, again and again, so the cost of a refusal can become the
server's main load. The gate therefore answers in the protocol layer (`duly.http`) with a response
cached for a moment. It sends a few refusals per interval, so that submissions of other tenants
are handled in between; the more refusals are queued, the more are sent, so none waits long.

Only certain cases are refused here. A repeated idempotency key is not rate-limited, so a request
that may contain one, in any spelling, takes the ordinary path, as does a caller whose key is not
cached.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from duly import clock
from duly.api.app import SECURITY_HEADERS
from duly.api.auth import bearer_in, may_submit
from duly.api.error_responses import STATUSES, retry_after
from duly.api.fleet import metrics
from duly.api.limits.rate_headers import rate_headers
from duly.api.responses import ENCODER, JSON_MEDIA_TYPE
from duly.api.tasks.task_shapes import ErrorObject, ErrorResponse
from duly.errors import LimitExceeded
from duly.http.early_refusal import Refusal
from duly.server.admission.rate_limiter import count_refused
from duly.server.components import Components

SUBMIT_PATHS = frozenset({"/v1/tasks", "/v1/jobs"})
KEY_FIELD = b"idempotency_key"
MAX_REUSE_SECONDS = 0.05
"""How long a cached refusal is reused."""
SEND_INTERVAL_SECONDS = 0.001
MIN_SENT_PER_INTERVAL = 4
MAX_DELAY_INTERVALS = 10
"""All queued refusals are sent within this many intervals."""


class CachedRefusal(NamedTuple):
    """The encoded refusal of one caller."""

    refusal: Refusal
    expires_at: float
    """By the monotonic clock."""


class RateGate:
    """Decides which submissions are refused, and when each refusal is sent."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._cache: dict[bytes, CachedRefusal] = {}
        self._send_queue: deque[Callable[[], None]] = deque()
        self._counts: Counter[str] = Counter()

    def refusal(self, scope: Any) -> Refusal | None:
        """Return the refusal of a request, valid unless its body has an idempotency key."""
        if self._components.rate_limiter.has_no_empty_bucket or scope["path"] not in SUBMIT_PATHS:
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
        cached = self._cache.get(authorization)
        if cached is None or cached.expires_at < clock.monotonic():
            cached = self._evaluate(authorization)
        return None if cached is None else cached.refusal

    def may_refuse(self, body: bytes | bytearray) -> bool:
        """Return True if the body has no idempotency key.

        Other spellings of the field's name need a backslash.
        """
        return KEY_FIELD not in body and b"\\" not in body

    def enqueue(self, path: str, send: Callable[[], None]) -> None:
        """Queue a refusal; `send` is called when it is to be sent."""
        self._counts[path] += 1
        self._send_queue.append(send)
        if len(self._send_queue) == 1:
            self._schedule_sending()

    def _evaluate(self, authorization: bytes) -> CachedRefusal | None:
        self._cache.pop(authorization, None)
        bearer = bearer_in([(b"authorization", authorization)])
        caller = None if bearer is None else self._components.authenticator.get_cached(bearer)
        if caller is None or not may_submit(caller):
            return None
        error = self._components.rate_limiter.violation(caller)
        if not isinstance(error, LimitExceeded):
            return None
        headers = {"retry-after": retry_after(error), **rate_headers(self._components, caller)}
        reuse = min(MAX_REUSE_SECONDS, error.retry_after.total_seconds())
        cached = CachedRefusal(_encode_refusal(error, headers), clock.monotonic() + reuse)
        self._cache[authorization] = cached
        return cached

    def _schedule_sending(self) -> None:
        asyncio.get_running_loop().call_later(SEND_INTERVAL_SECONDS, self._send_queued)

    def _send_queued(self) -> None:
        for path, count in self._counts.items():
            metrics.count_responses("POST", path, STATUSES[LimitExceeded], count)
            count_refused(count)
        self._counts.clear()
        count = max(MIN_SENT_PER_INTERVAL, len(self._send_queue) // MAX_DELAY_INTERVALS)
        for _ in range(min(count, len(self._send_queue))):
            self._send_queue.popleft()()
        if self._send_queue:
            self._schedule_sending()
        else:
            # The cache holds keys in clear, so expired entries are removed at once.
            now = clock.monotonic()
            self._cache = {
                authorization: cached
                for authorization, cached in self._cache.items()
                if cached.expires_at > now
            }


def _encode_refusal(error: LimitExceeded, headers: dict[str, str]) -> Refusal:
    body = ENCODER.encode(ErrorResponse(ErrorObject(error.code, error.message, error.details)))
    fields = {"content-type": JSON_MEDIA_TYPE, "content-length": str(len(body)), **headers}
    lines = [(name.encode(), value.encode()) for name, value in fields.items()]
    head = b"HTTP/1.1 %d Too Many Requests\r\n" % STATUSES[LimitExceeded]
    return Refusal(
        head + b"".join(b"%b: %b\r\n" % line for line in (*lines, *SECURITY_HEADERS)), body
    )
