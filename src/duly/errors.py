"""Every error that a caller may want to handle separately.

    DulyError
    ├── Malformed            not parseable as a request
    ├── Unauthenticated      no key, or one that is not valid
    ├── Forbidden            a valid key that may not do this
    │   └── TenantSuspended  the tenant is read-only for now
    ├── NotFound             unknown, or another tenant's
    ├── Conflict             the state does not permit this, or no longer
    │   ├── KeyReused        an idempotency key was reused with another body
    │   └── Fenced           the lease is lost: reports of its holder are ignored
    ├── TooLarge
    ├── Invalid              understood, but a field cannot be accepted
    │   ├── UnknownArtifact  a task needs a bundle that its tenant has not uploaded
    │   ├── ArgumentError    an argument of a function cannot be sent, or is missing
    │   └── ResultError      what a function returned is not of its declared type
    ├── LimitExceeded        a limit of the plan is used up; retry after `retry_after`
    ├── Unavailable          not now; the same request may succeed later
    │   ├── NotLeading       this server's term is over
    │   └── Unreachable      no server answers at the URL that a client was given
    ├── TaskFailed           a task whose result was asked for is not done
    └── ConfigError          an invalid setting, flag or file at start-up

Failures of the machinery (a dropped connection, a full disk) are not here: they
are left to propagate, and the loop that they broke starts its next tick afresh.
"""

from collections.abc import Mapping
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
    """The request cannot be parsed."""

    code = "malformed"


class Unauthenticated(DulyError):
    """The key is missing, unknown, expired or revoked."""

    code = "unauthenticated"


class Forbidden(DulyError):
    """The key is valid but lacks the scope for this."""

    code = "forbidden"


class TenantSuspended(Forbidden):
    """The tenant is suspended: it may read, and nothing else."""

    code = "tenant_suspended"


class NotFound(DulyError):
    """The object does not exist, or belongs to another tenant."""

    code = "not_found"


class Conflict(DulyError):
    """The object is not, or no longer, in a state that permits the operation."""

    code = "conflict"


class KeyReused(Conflict):
    """An idempotency key was reused with a different body."""

    code = "idempotency_key_reused"


class Fenced(Conflict):
    """The lease was lost; messages of its former holder are rejected."""

    code = "fenced"


class TooLarge(DulyError):
    """The request exceeds a size limit."""

    code = "too_large"


class Invalid(DulyError):
    """A field of the request is invalid; `field` is its path, as in `resources.cpu`.

    `problem` says what is wrong with the value and what to write instead. The message is both:
    "resources.cpu: …". It begins with the field in every case, so that a client which calls the
    field by another name, as the command line does, can put that name there.
    """

    code = "invalid"

    def __init__(self, field: str, problem: str, **details: Any) -> None:
        super().__init__(f"{field}: {problem}" if field else problem, field=field, **details)
        self.field = field
        self.problem = problem

    def within(self, outer: str) -> "Invalid":
        """Return the same error for a request that has this one's in its field `outer`."""
        details = {name: value for name, value in self.details.items() if name != "field"}
        return Invalid(f"{outer}.{self.field}" if self.field else outer, self.problem, **details)


class UnknownArtifact(Invalid):
    """The tenant has no artifact with that hash; upload it first."""

    code = "unknown_artifact"


class ArgumentError(Invalid, TypeError):
    """The arguments of a Python function do not fit its signature; `field` is the argument."""

    code = "argument_invalid"


class ResultError(Invalid):
    """The value that a Python function returned cannot be written as JSON by its type hint."""

    code = "result_invalid"


class LimitExceeded(DulyError):
    """A limit of the tenant's plan is used up; the message begins with "Limit exceeded".

    When it is unknown when the limit clears, `retry_after` is a minute, which is longer than
    clients retry on their own.
    """

    code = "limit_exceeded"

    def __init__(
        self, message: str, retry_after: timedelta = timedelta(minutes=1), **details: Any
    ) -> None:
        super().__init__(message, retry_after=retry_after.total_seconds(), **details)
        self.retry_after = retry_after


class Unavailable(DulyError):
    """The request failed for now, or its outcome is unknown; retry it."""

    code = "unavailable"

    def __init__(self, message: str, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(message, retry_after=retry_after.total_seconds())
        self.retry_after = retry_after


class NotLeading(Unavailable):
    """This server's term is over; the current leader does the work."""

    code = "not_leading"


class Unreachable(Unavailable):
    """No server responded; a request that was sent may or may not have been accepted."""

    code = "unreachable"


class TaskFailed(DulyError):
    """A task whose result was asked for has failed or was cancelled.

    `reason` says why: a sentence for people, a code for programs. `traceback` is that of a Python
    function that raised an error, and `log` is the end of what the last attempt wrote.
    """

    code = "task_failed"

    def __init__(
        self,
        message: str,
        *,
        task: str | None = None,
        reason: Mapping[str, Any] | None = None,
        traceback: str | None = None,
        log: str = "",
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.task = task
        self.reason = reason
        self.traceback = traceback
        self.log = log

    def __str__(self) -> str:
        parts = [self.message]
        if self.traceback:
            parts.append(f"Its traceback:\n{self.traceback.rstrip()}")
        if self.log:
            parts.append(f"The end of its log:\n{self.log.rstrip()}")
        return "\n\n".join(parts)


class ConfigError(DulyError):
    """A setting, flag or file given at start-up is invalid."""

    code = "config"
