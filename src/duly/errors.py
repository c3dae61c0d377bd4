"""Every error that a caller may want to tell apart.

    DulyError
    ├── Malformed            not even readable as a request
    ├── Unauthenticated      no key, or one that is not valid
    ├── Forbidden            a valid key that may not do this
    │   └── TenantSuspended  its tenant may only look for now
    ├── NotFound             unknown, or somebody else's
    ├── Conflict             the thing has moved on since the caller last looked
    │   ├── KeyReused        an idempotency key came back with another body
    │   └── Fenced           the lease is gone: nothing of this attempt or agent counts
    ├── TooLarge
    ├── Invalid              understood, but a field cannot be accepted
    │   └── UnknownArtifact  a task needs a bundle that its tenant has not uploaded
    ├── LimitExceeded        a limit of the plan is used up; try again after `retry_after`
    ├── Unavailable          not now; the same request may succeed later
    │   ├── NotLeading       this server's term is over
    │   └── Unreachable      no server answers at the URL that a client was given
    ├── TaskFailed           a task that was waited for did not end as done
    └── ConfigError          a setting or a file that Duly was started with

Failures of the machinery (a dropped connection, a full disk) are not here: they
are left to propagate, and the loop that they broke starts its next tick afresh.
"""

from datetime import timedelta
from typing import Any, ClassVar


class DulyError(Exception):
    """The root of every error raised on purpose."""

    code: ClassVar[str] = "error"
    """Stable, machine-readable name; part of the public API."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Malformed(DulyError):
    """The request is not readable at all."""

    code = "malformed"


class Unauthenticated(DulyError):
    """No key was given, or one that is unknown, expired or revoked."""

    code = "unauthenticated"


class Forbidden(DulyError):
    """The key is valid, and may not do this."""

    code = "forbidden"


class TenantSuspended(Forbidden):
    """The tenant is suspended: it may look at what it has, and do nothing else."""

    code = "tenant_suspended"


class NotFound(DulyError):
    """There is no such thing, or it belongs to somebody else."""

    code = "not_found"


class Conflict(DulyError):
    """The thing is not, or no longer, in a state in which this can be done."""

    code = "conflict"


class KeyReused(Conflict):
    """An idempotency key that belongs to another task came back with a different body."""

    code = "idempotency_key_reused"


class Fenced(Conflict):
    """The lease has passed on; nothing that its former holder says counts any more."""

    code = "fenced"


class TooLarge(DulyError):
    """The request is larger than the server takes."""

    code = "too_large"


class Invalid(DulyError):
    """A field of the request cannot be accepted; `field` is its path, as in `resources.cpu`."""

    code = "invalid"

    def __init__(self, field: str, message: str, **details: Any) -> None:
        super().__init__(message, field=field, **details)
        self.field = field


class UnknownArtifact(Invalid):
    """The tenant has no artifact of that hash; upload it first."""

    code = "unknown_artifact"


class LimitExceeded(DulyError):
    """The tenant has used up what its plan grants; the message begins with "Limit exceeded".

    Without a time at which there is room again `retry_after` is a minute, which is longer than
    clients try by themselves.
    """

    code = "limit_exceeded"

    def __init__(
        self, message: str, retry_after: timedelta = timedelta(minutes=1), **details: Any
    ) -> None:
        super().__init__(message, retry_after=retry_after.total_seconds(), **details)
        self.retry_after = retry_after


class Unavailable(DulyError):
    """It cannot be done now, or it is not known whether it was; try again."""

    code = "unavailable"

    def __init__(self, message: str, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(message, retry_after=retry_after.total_seconds())
        self.retry_after = retry_after


class NotLeading(Unavailable):
    """This server's term is over; whoever leads now does the work."""

    code = "not_leading"


class Unreachable(Unavailable):
    """No server answered; whether it took the request is not known if it had been sent."""

    code = "unreachable"


class TaskFailed(DulyError):
    """A task that was waited for ended otherwise than done."""

    code = "task_failed"


class ConfigError(DulyError):
    """A setting, a flag or a file that a process was started with cannot be used."""

    code = "config"
