"""One call of the API as a value, and how its answer is read.

A call says everything that a transport needs, so the sync and the async client
differ only in how they move bytes, and every rule about errors and repetition is
written once.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from duly import errors
from duly.errors import DulyError, Invalid

T = TypeVar("T")

READ_TIMEOUT = 30.0
"""Seconds of silence after which an answer is given up, on top of what was asked to wait."""
FILE_TYPE = "application/octet-stream"

BY_STATUS: Mapping[int, type[DulyError]] = {
    400: errors.Malformed,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
}
MORE_KINDS: tuple[type[DulyError], ...] = (errors.KeyReused, errors.Fenced, errors.TenantSuspended)
BY_CODE = {kind.code: kind for kind in (*BY_STATUS.values(), *MORE_KINDS)}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how to read what it is answered.

    `repeatable` says that sending it twice does no more than sending it once, so it
    may be sent again when it is not known whether it arrived.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    file: Path | None = None
    """What is sent instead of a body, read from the disk at each try."""
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    timeout: float | None = READ_TIMEOUT
    """Seconds of silence that are borne; None for a stream, which may be silent for long."""


def encode(value: Any) -> bytes:
    """Return `value` as JSON; durations become seconds, and times RFC 3339."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=True, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("body", f"The request cannot be written as JSON: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def instant(value: str | datetime, field: str = "time") -> str:
    """Return a time as RFC 3339; a datetime without an offset would be a guess."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise Invalid(field, f"{field} has no offset: {value}. Give it one, such as datetime.UTC.")
    return value.isoformat()


def parse_json(body: bytes) -> Any:
    """Read an answer's JSON; anything else did not come from Duly."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DulyError("What answered does not speak JSON: is this the URL of Duly?") from error


def read_answer(call: Call[T], answer: Answer) -> T:
    """Return what the call is for, or raise the error that the server told."""
    if 200 <= answer.status < 300:
        return call.read(answer.body)
    raise read_error(answer)


def read_error(answer: Answer) -> DulyError:
    """Turn a refusal into the error of `duly.errors` that it stands for."""
    told = _told(answer.body)
    message = str(told.get("message") or f"The server answered {answer.status}.")
    details = told.get("details")
    details = details if isinstance(details, dict) else {}
    if answer.status == 429:
        limited = errors.LimitExceeded(message, _retry_after(answer, 1.0))
        limited.details = details
        return limited
    if answer.status in (502, 503, 504):
        return errors.Unavailable(message, _retry_after(answer, 0.0))
    if answer.status == 422:
        extra = {key: value for key, value in details.items() if key not in ("field", "message")}
        return Invalid(str(details.get("field", "")), message, **extra)
    kind = BY_CODE.get(str(told.get("code"))) or BY_STATUS.get(answer.status, DulyError)
    error = kind(message)
    error.details = details
    return error


def _told(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, RecursionError, TypeError, KeyError, IndexError):
        return {}
    return error if isinstance(error, dict) else {}


def _retry_after(answer: Answer, default: float) -> timedelta:
    try:
        seconds = float(answer.retry_after or default)
    except ValueError:  # the form with a date, which Duly never sends
        seconds = default
    if not seconds >= 0.0:  # a negative number, or none at all: "nan" is read as a float
        seconds = default
    return timedelta(seconds=min(seconds, 86_400.0))
