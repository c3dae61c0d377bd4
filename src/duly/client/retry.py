"""Decides whether a call that came to nothing is sent again, and after how long.

What is safe to repeat depends on what is known: a call that never left, or that
was refused for its rate, did nothing; any other may have been done although its
answer was lost, and is repeated only if doing it twice is doing it once.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from duly.client.call import Call
from duly.errors import LimitExceeded, Unavailable

CUT = "the connection was cut"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is repeated in all, and the pauses between."""

    total: timedelta = timedelta(seconds=20)
    base_delay: timedelta = timedelta(milliseconds=100)
    max_delay: timedelta = timedelta(seconds=3)
    silence: timedelta = timedelta(seconds=10)
    """What is borne from one server, beyond what it was asked to wait, when there are others."""


class NoAnswer(Exception):
    """No server answered: `sent` tells whether the request may have arrived."""

    def __init__(self, message: str, *, sent: bool, hopeless: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent
        self.hopeless = hopeless
        """Whether asking again cannot help, as with a certificate that is not trusted."""


Trouble = NoAnswer | LimitExceeded | Unavailable


def may_repeat(call: Call[Any], trouble: Trouble) -> bool:
    """Say whether sending `call` again cannot do it twice."""
    if isinstance(trouble, NoAnswer):
        return not trouble.hopeless and (call.repeatable or not trouble.sent)
    return call.repeatable or isinstance(trouble, LimitExceeded)


def pause(
    patience: Patience, trouble: Trouble, *, tries: int, servers: int, elapsed: float, jitter: float
) -> float | None:
    """Return the seconds to wait before the next try, or None when patience is at its end.

    `tries` counts those that failed. While another server is left to be asked, it is asked at
    once, and patience does not end before each has been. `jitter`, from 0 to 1, spreads the
    clients out; a server's own `Retry-After` is the least, and those whom it turned away together
    come back over as long a time again.
    """
    left = patience.total.total_seconds() - elapsed
    if isinstance(trouble, NoAnswer) and tries < servers:
        return 0.0
    if left <= 0:
        return None
    if isinstance(trouble, NoAnswer) and tries % servers:
        return 0.0
    rounds = min((tries - 1) // servers, 32)
    asked = 0.0 if isinstance(trouble, NoAnswer) else trouble.retry_after.total_seconds()
    spread = max(patience.base_delay.total_seconds() * 2.0**rounds, asked)
    delay = asked + min(spread, patience.max_delay.total_seconds()) * jitter
    return delay if delay < left else None
