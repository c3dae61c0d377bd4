"""The retry loop of one call: failover to the next server, backoff, and when to give up.

Shared by both clients, which add only the sleeping.
"""

import random
from dataclasses import replace
from typing import Any

from duly import clock
from duly.client.call import READ_TIMEOUT_SECONDS, Call
from duly.client.endpoint import Endpoint
from duly.client.retry import (
    CONNECTION_CLOSED,
    CallFailure,
    NoResponse,
    Patience,
    is_safe_to_retry,
    retry_delay,
)
from duly.errors import Unreachable


class Servers:
    """The servers of an endpoint, and the one in use."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._index = 0

    @property
    def current(self) -> str:
        """The URL to send the next request to."""
        return self.endpoint.urls[self._index % len(self.endpoint.urls)]

    def fail_over(self, url: str) -> None:
        """Switch to the next server, unless another thread has already done so."""
        if url == self.current:
            self._index += 1


class CallAttempts:
    """Counts the failed tries of `call`, and decides after each whether to retry."""

    def __init__(self, call: Call[Any], servers: Servers, patience: Patience) -> None:
        self.call = (
            _with_failover_timeout(call, patience) if len(servers.endpoint.urls) > 1 else call
        )
        """The call to send, with its timeout adjusted for failover."""
        self._servers = servers
        self._patience = patience
        self._since = clock.monotonic()
        self._failed = 0

    def delay_after_failure(self, url: str, failure: CallFailure) -> float:
        """Return the seconds to wait before the next try; raises if there must be none."""
        self._failed += 1
        self._servers.fail_over(url)
        delay = self._delay(failure) if is_safe_to_retry(self.call, failure) else None
        if delay is not None:
            return delay
        if isinstance(failure, NoResponse):
            raise self._unreachable(failure) from failure
        raise failure

    def _delay(self, failure: CallFailure) -> float | None:
        return retry_delay(
            self._patience,
            failure,
            tries=self._failed,
            servers=len(self._servers.endpoint.urls),
            elapsed=clock.monotonic() - self._since,
            jitter=random.random(),  # noqa: S311 - spreads load, guards nothing
        )

    def _unreachable(self, failure: NoResponse) -> Unreachable:
        urls = ", ".join(self._servers.endpoint.urls)
        message = f"Duly cannot be reached at {urls}: {failure.message}."
        if failure.message == CONNECTION_CLOSED and "http://" in urls:
            # A server with TLS just closes a connection that speaks plain HTTP.
            message += " If the server uses TLS, use an https:// URL."
        if failure.sent and not self.call.repeatable:
            message += " The request may have been carried out: check before you repeat it."
        return Unreachable(message)


def _with_failover_timeout(call: Call[Any], patience: Patience) -> Call[Any]:
    """Shorten the read timeout when there is another server to fail over to."""
    if call.timeout is None or not call.repeatable:
        return call
    return replace(
        call, timeout=call.timeout - READ_TIMEOUT_SECONDS + patience.silence.total_seconds()
    )
