"""An API request as a value, and how its response is decoded.

A `Call` holds everything that a transport needs, so the sync and the async client differ only in
how they move bytes, and the rules for errors and retries exist once.

Decision: docs/adr/0003-sync-client-transport.md.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from duly import errors
from duly.errors import DulyError, Invalid

CREATED = 201
T = TypeVar("T")

READ_TIMEOUT_SECONDS = 30.0
"""How long to wait for bytes of a response, on top of the wait that was asked of the server."""
FILE_CONTENT_TYPE = "application/octet-stream"

ERROR_BY_STATUS: Mapping[int, type[DulyError]] = {
    400: errors.Malformed,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
}
ERRORS_WITH_OWN_CODE: tuple[type[DulyError], ...] = (
    errors.KeyReused,
    errors.Fenced,
    errors.TenantSuspended,
    errors.TaskFailed,
)
ERROR_BY_CODE = {kind.code: kind for kind in (*ERROR_BY_STATUS.values(), *ERRORS_WITH_OWN_CODE)}


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the function that decodes the body of its response.

    `repeatable` marks an idempotent request, which may be sent again when it is unknown whether
    the first one arrived.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    file: Path | None = None
    """A file to send as the body, read from the disk at each try."""
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    timeout: float | None = READ_TIMEOUT_SECONDS
    """Read timeout in seconds; None for a stream, which may stay silent for long."""
    read_status: Callable[[int, bytes], T] | None = None
    """Used instead of `read` where the status of a success matters: 200 or 201."""

    def telling_if_created(self) -> "Call[tuple[T, bool]]":
        """Return the call with a result that also has whether this call created something."""
        return Call(
            self.method,
            self.path,
            lambda body: (self.read(body), True),
            body=self.body,
            headers=self.headers,
            repeatable=self.repeatable,
            timeout=self.timeout,
            read_status=lambda status, body: (self.read(body), status == CREATED),
        )


def encode(value: Any) -> bytes:
    """Return `value` as JSON; durations become seconds, and times RFC 3339."""
    try:
        return json.dumps(value, default=_json_default, ensure_ascii=True, allow_nan=False).encode()
    except Invalid as error:  # a time without an offset
        raise Invalid(_field_of_problem(value), error.problem) from None
    except (TypeError, ValueError) as error:
        field = _field_of_problem(value)
        raise Invalid(field, f"it cannot be written as JSON: {error}.") from error
    except RecursionError as error:
        raise Invalid("", f"The request cannot be written as JSON: {error}.") from error


def _field_of_problem(value: Any, field: str = "") -> str:
    """Return the field of the innermost value that cannot be written as JSON."""
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(f"{field}.{name}".lstrip("."), part) for name, part in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [(f"{field}[{index}]", part) for index, part in enumerate(value)]
    for name, part in inner:
        try:
            json.dumps(part, default=_json_default, allow_nan=False)
        except (TypeError, ValueError, Invalid):
            return _field_of_problem(part, name)
    return field


def _json_default(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def format_instant(value: str | datetime, field: str = "time") -> str:
    """Return a time as RFC 3339; raises Invalid for a naive datetime."""
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise Invalid(field, f"{value} has no UTC offset. Add one, such as datetime.UTC.")
    return value.isoformat()


def parse_json(body: bytes) -> Any:
    """Decode a JSON body; raises DulyError for anything else, which Duly never sends."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DulyError(
            "The response is not JSON. Check that DULY_URL is the URL of a Duly server."
        ) from error


def read_response(call: Call[T], response: Response) -> T:
    """Return the decoded body of a successful response, or raise the server's error."""
    if 200 <= response.status < 300:
        if call.read_status is not None:
            return call.read_status(response.status, response.body)
        return call.read(response.body)
    raise read_error(response)


def read_error(response: Response) -> DulyError:
    """Convert an error response into the matching error of `duly.errors`."""
    error_fields = _error_object(response.body)
    message = str(error_fields.get("message") or f"The server answered {response.status}.")
    details = error_fields.get("details")
    details = details if isinstance(details, dict) else {}
    if response.status == 429:
        limited = errors.LimitExceeded(message, _retry_after(response, 1.0))
        limited.details = details
        return limited
    if response.status in (502, 503, 504):
        return errors.Unavailable(message, _retry_after(response, 0.0))
    if response.status == 422:
        extra = {key: value for key, value in details.items() if key not in ("field", "message")}
        field = str(details.get("field", ""))
        return Invalid(field, message.removeprefix(f"{field}: "), **extra)
    kind = ERROR_BY_CODE.get(str(error_fields.get("code"))) or ERROR_BY_STATUS.get(
        response.status, DulyError
    )
    error = kind(message)
    error.details = details
    return error


def _error_object(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, RecursionError, TypeError, KeyError, IndexError):
        return {}
    return error if isinstance(error, dict) else {}


def _retry_after(response: Response, default: float) -> timedelta:
    try:
        seconds = float(response.retry_after or default)
    except ValueError:  # the HTTP-date form, which Duly never sends
        seconds = default
    if not seconds >= 0.0:  # negative, or NaN: float() accepts "nan"
        seconds = default
    return timedelta(seconds=min(seconds, 86_400.0))
