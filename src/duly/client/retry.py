"""Decides whether a failed call is retried, and after how long.

A call that was never sent, or was rejected by the rate limiter, had no effect and is always safe
to retry. Any other call may have succeeded although its response was lost, and is retried only if
it is idempotent.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from duly.client.call import Call
from duly.errors import LimitExceeded, Unavailable

CONNECTION_CLOSED = "the connection was closed"


@dataclass(frozen=True, slots=True)
class Patience:
    """The retry policy of a client: for how long a call is retried, and the backoff between."""

    total: timedelta = timedelta(seconds=20)
    base_delay: timedelta = timedelta(milliseconds=100)
    max_delay: timedelta = timedelta(seconds=3)
    silence: timedelta = timedelta(seconds=10)
    """Read timeout for one server when there are others, on top of the requested wait."""
    unreachable: timedelta | None = None
    """For how long a call is retried that no server responds to; `total` unless it is given."""


class NoResponse(Exception):
    """A server sent no response. `sent` says whether the request may have reached it."""

    def __init__(self, message: str, *, sent: bool, permanent: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent
        self.permanent = permanent
        """Whether a retry cannot help, as with an untrusted certificate."""


CallFailure = NoResponse | LimitExceeded | Unavailable


def is_safe_to_retry(call: Call[Any], failure: CallFailure) -> bool:
    """Return True if sending `call` again cannot carry it out twice."""
    if isinstance(failure, NoResponse):
        return not failure.permanent and (call.repeatable or not failure.sent)
    return call.repeatable or isinstance(failure, LimitExceeded)


def retry_delay(
    patience: Patience,
    failure: CallFailure,
    *,
    tries: int,
    servers: int,
    elapsed: float,
    jitter: float,
) -> float | None:
    """Return the seconds to wait before the next try, or None to give up.

    `tries` counts the failed ones. While there is a server that has not been tried in this round,
    it is tried at once, and every server is tried at least once. `jitter`, from 0 to 1, spreads
    the clients out. `Retry-After` is the minimum; clients that a server rejected together return
    spread over the same duration again.
    """
    total = patience.total
    if isinstance(failure, NoResponse):
        total = patience.total if patience.unreachable is None else patience.unreachable
        if tries < servers:
            return 0.0
    remaining = total.total_seconds() - elapsed
    if remaining <= 0:
        return None
    if isinstance(failure, NoResponse) and tries % servers:
        return 0.0
    rounds = min((tries - 1) // servers, 32)
    retry_after = 0.0 if isinstance(failure, NoResponse) else failure.retry_after.total_seconds()
    spread = max(patience.base_delay.total_seconds() * 2.0**rounds, retry_after)
    delay = retry_after + min(spread, patience.max_delay.total_seconds()) * jitter
    return delay if delay < remaining else None
