"""Maps errors to HTTP responses; the only module that knows which status an error has.

Every failure, down to an unknown path, has the same JSON body, and none reveals internals.
"""

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from duly.api.limits.rate_headers import rate_headers
from duly.api.responses import as_json
from duly.api.routes import MethodNotAllowed, components_of
from duly.api.tasks.task_shapes import ErrorObject, ErrorResponse
from duly.errors import (
    Conflict,
    DulyError,
    Forbidden,
    Invalid,
    LimitExceeded,
    Malformed,
    NotFound,
    TaskFailed,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from duly.model.tenant import Credential

log = logging.getLogger(__name__)

STATUSES: dict[type[DulyError], int] = {
    Malformed: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    MethodNotAllowed: 405,
    Conflict: 409,
    TaskFailed: 409,
    TooLarge: 413,
    Invalid: 422,
    LimitExceeded: 429,
    Unavailable: 503,
}
"""An error has the status of its nearest ancestor listed here; any other is a bug, hence 500."""


def error_response(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed with `error`."""
    kind = next((kind for kind in type(error).__mro__ if kind in STATUSES), None)
    if kind is None or not isinstance(error, DulyError):
        return _internal_error(request, error)
    response = _response(STATUSES[kind], error.code, error.message, error.details)
    response.headers.update(_headers(request, error))
    return response


def retry_after(error: LimitExceeded | Unavailable) -> str:
    """Return the value of the Retry-After header, in seconds.

    It is rounded up: a client that waits exactly that long must not come too early.
    """
    return str(max(1, -int(-error.retry_after.total_seconds() // 1)))


def _headers(request: Request, error: DulyError) -> dict[str, str]:
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if isinstance(error, Unavailable):
        return {"retry-after": retry_after(error)}
    if isinstance(error, LimitExceeded):
        headers = {"retry-after": retry_after(error)}
        caller = request.scope.get("auth")
        if isinstance(caller, Credential):
            headers |= rate_headers(components_of(request), caller)
        return headers
    return {}


def _internal_error(request: Request, error: Exception) -> Response:
    """Log an unexpected error, and return a response that reveals nothing of it."""
    log.error("%s %s failed", request.method, request.scope.get("path_template"), exc_info=error)
    return _response(500, "internal", "Internal server error; see the server's log.", {})


def _response(status: int, code: str, message: str, details: dict[str, Any]) -> Response:
    return as_json(ErrorResponse(ErrorObject(code, message, details)), status)
