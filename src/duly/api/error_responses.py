"""How errors are answered: the only place that knows which HTTP status an error has.

Whatever goes wrong, down to an unknown path, is answered in the one shape of errors, and tells
nothing of what is inside.
"""

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from duly.api.rate_headers import rate_headers
from duly.api.responses import as_json
from duly.api.routes import MethodNotAllowed, parts_of
from duly.api.shapes import ErrorAnswer, ErrorValue
from duly.errors import (
    Conflict,
    DulyError,
    Forbidden,
    Invalid,
    LimitExceeded,
    Malformed,
    NotFound,
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
    TooLarge: 413,
    Invalid: 422,
    LimitExceeded: 429,
    Unavailable: 503,
}
"""An error has the status of its nearest ancestor here; what has none is our own fault."""


def error_response(request: Request, error: Exception) -> Response:
    """Return the response to a request that ended with `error`."""
    kind = next((kind for kind in type(error).__mro__ if kind in STATUSES), None)
    if kind is None or not isinstance(error, DulyError):
        return _internal_error(request, error)
    response = _response(STATUSES[kind], error.code, error.message, error.details)
    response.headers.update(_headers(request, error))
    return response


def retry_after(error: LimitExceeded | Unavailable) -> str:
    """Return the seconds until it is worth trying again.

    Rounded up: a client that waits exactly that long must not come too early.
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
            headers |= rate_headers(parts_of(request), caller)
        return headers
    return {}


def _internal_error(request: Request, error: Exception) -> Response:
    """Answer what nobody expected: it goes to the log, and none of it to the caller."""
    log.error("%s %s failed", request.method, request.scope.get("path_template"), exc_info=error)
    return _response(500, "internal", "The server failed; its log says more.", {})


def _response(status: int, code: str, message: str, details: dict[str, Any]) -> Response:
    return as_json(ErrorAnswer(ErrorValue(code, message, details)), status)
