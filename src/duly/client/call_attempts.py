"""The tries at one call: which server is asked next, and when it is given up.

Shared by both clients, which add only the sleeping.
"""

import random
from dataclasses import replace
from typing import Any

from duly import clock
from duly.client.call import READ_TIMEOUT, Call
from duly.client.endpoint import Endpoint
from duly.client.retry import CUT, NoAnswer, Patience, Trouble, may_repeat, pause
from duly.errors import Unreachable


class Servers:
    """The servers of an endpoint, and the one that answered last."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._index = 0

    @property
    def current(self) -> str:
        """The URL to be asked now."""
        return self.endpoint.urls[self._index % len(self.endpoint.urls)]

    def pass_over(self, url: str) -> None:
        """Ask the next one from now on, unless another thread has moved on already."""
        if url == self.current:
            self._index += 1


class Tries:
    """Counts the tries at `call`, and decides after each that failed."""

    def __init__(self, call: Call[Any], servers: Servers, patience: Patience) -> None:
        self.call = _impatient(call, patience) if len(servers.endpoint.urls) > 1 else call
        """The call as it is to be sent."""
        self._servers = servers
        self._patience = patience
        self._since = clock.monotonic()
        self._failed = 0

    def after(self, url: str, trouble: Trouble) -> float:
        """Return how long to wait before the next try; raises when there is none."""
        self._failed += 1
        self._servers.pass_over(url)
        delay = self._delay(trouble) if may_repeat(self.call, trouble) else None
        if delay is not None:
            return delay
        if isinstance(trouble, NoAnswer):
            raise self._unreachable(trouble) from trouble
        raise trouble

    def _delay(self, trouble: Trouble) -> float | None:
        return pause(
            self._patience,
            trouble,
            tries=self._failed,
            servers=len(self._servers.endpoint.urls),
            elapsed=clock.monotonic() - self._since,
            jitter=random.random(),  # noqa: S311 - spreads load, guards nothing
        )

    def _unreachable(self, trouble: NoAnswer) -> Unreachable:
        urls = ", ".join(self._servers.endpoint.urls)
        message = f"Duly cannot be reached at {urls}: {trouble.message}."
        if trouble.message == CUT and "http://" in urls:
            # All that a server with TLS has to say to plain HTTP.
            message += " If it uses TLS, its URL begins with https://."
        if trouble.sent and not self.call.repeatable:
            message += " Whether the request was carried out is not known: look first, then repeat."
        return Unreachable(message)


def _impatient(call: Call[Any], patience: Patience) -> Call[Any]:
    """Bear less silence of one server when another could be asked: it may be stopped."""
    if call.timeout is None or not call.repeatable:
        return call
    return replace(call, timeout=call.timeout - READ_TIMEOUT + patience.silence.total_seconds())
