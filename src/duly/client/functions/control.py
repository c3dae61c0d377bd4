"""The exceptions with which a function tells its worker what is to become of its task."""

from datetime import timedelta

from duly.client.shapes.task_shapes import Duration
from duly.duration import parse_duration
from duly.errors import DulyError


class Retry(DulyError):
    """Raise it to be run again later: `raise duly.Retry(after="30s", reason="no stock yet")`.

    It counts as a failure within `max_attempts`; without `after`, the usual backoff applies.
    """

    code = "retry_requested"

    def __init__(self, after: Duration | None = None, reason: str | None = None) -> None:
        super().__init__(reason or "The function asked to be run again.")
        self.reason = reason
        self.after = None if after is None else seconds_of(after)
        """Seconds until the next attempt, or None for the usual backoff."""


class GiveUp(DulyError):
    """Raise it if another attempt would be useless: the task goes to the dead letters at once."""

    code = "gave_up"

    def __init__(self, reason: str = "The function gave up.") -> None:
        super().__init__(reason)
        self.reason = reason


class Cancelled(BaseException):
    """Raised in a function at its execution cap, or when its task is cancelled.

    It is no `Exception`, so that code which handles all errors does not swallow it. A function
    may clean up and must let it go on; what is still running after the grace period is killed.
    """


def seconds_of(duration: Duration) -> float:
    """Return a duration in seconds."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    return parse_duration(duration, "after").total_seconds()
