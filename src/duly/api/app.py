"""The REST API of a server, put together.

This is the only place that knows which HTTP status an error has. Whatever goes
wrong, down to an unknown path, is answered in the one shape of errors, and tells
nothing of what is inside.
"""

import logging
from collections.abc import MutableMapping
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.types import Message, Scope

from duly.api import (
    artifacts,
    attempt,
    audit,
    cancel,
    dead_letters,
    docs,
    gateway,
    graph_wishes,
    graphs,
    keys,
    limits,
    login,
    logs,
    metrics,
    nodes,
    pause,
    plans,
    resources,
    schedule_history,
    schedules,
    servers,
    status,
    tasks,
    tenants,
    tiers,
    usage,
    users,
)
from duly.api.answer import ENCODER
from duly.api.auth import guard
from duly.api.rate_headers import rate_headers
from duly.api.shapes import ErrorAnswer, ErrorValue
from duly.api.straight import Straight
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
from duly.server.parts import Parts

log = logging.getLogger(__name__)

STATUSES: dict[type[DulyError], int] = {
    Malformed: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    Invalid: 422,
    LimitExceeded: 429,
    Unavailable: 503,
}
"""An error has the status of its nearest ancestor here; what has none is our own fault."""
FOREIGN = {
    400: ("malformed", "The request cannot be read."),
    404: ("not_found", "There is nothing at this path."),
    405: ("method_not_allowed", "This path does not take this method."),
    413: ("too_large", "The request is too large."),
}
"""What the framework refuses by itself, in our words."""
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
        b"form-action 'none'",
    ),
]


def create_app(parts: Parts) -> Litestar:
    """Return the API over the components of one server."""
    described = [
        *tasks.HANDLERS,
        *cancel.HANDLERS,
        *pause.HANDLERS,
        *logs.HANDLERS,
        *graphs.HANDLERS,
        *graph_wishes.HANDLERS,
        *dead_letters.HANDLERS,
        *nodes.HANDLERS,
        *servers.HANDLERS,
        *resources.HANDLERS,
        *schedules.HANDLERS,
        *schedule_history.HANDLERS,
        *artifacts.HANDLERS,
        *plans.HANDLERS,
        *tiers.HANDLERS,
        *limits.HANDLERS,
        *tenants.HANDLERS,
        *users.HANDLERS,
        *keys.HANDLERS,
        *login.HANDLERS,
        *audit.HANDLERS,
        *usage.HANDLERS,
        *gateway.HANDLERS,
        *attempt.HANDLERS,
        *status.HANDLERS,
        *metrics.HANDLERS,
    ]
    return Straight(
        headers=HEADERS,
        refuse=answer_error,
        route_handlers=[*described, *docs.handlers(described)],
        state=State({"parts": parts}, deep_copy=False),
        before_request=guard,
        exception_handlers={
            DulyError: refuse,
            HTTPException: refuse_foreign,
            Exception: fail,
        },
        before_send=[before_send],
        request_max_body_size=None,  # read_body has limits of its own
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer whatever went wrong, as the framework would with the handlers above."""
    if isinstance(error, DulyError):
        return refuse(request, error)
    return (
        refuse_foreign(request, error) if isinstance(error, HTTPException) else fail(request, error)
    )


def refuse(request: Request[Any, Any, Any], error: DulyError) -> Response[bytes]:
    """Answer an error that was raised on purpose."""
    kind = next((kind for kind in type(error).__mro__ if kind in STATUSES), None)
    if kind is None:
        return fail(request, error)
    headers = {}
    if isinstance(error, LimitExceeded | Unavailable):
        headers["retry-after"] = retry_after(error)
    caller = request.scope.get("auth")
    if isinstance(error, LimitExceeded) and isinstance(caller, Credential):
        headers |= rate_headers(request.app.state["parts"], caller)
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return _error(STATUSES[kind], error.code, error.message, error.details, headers)


def retry_after(error: LimitExceeded | Unavailable) -> str:
    """Return the seconds until it is worth trying again.

    Rounded up: a client that waits exactly that long must not come too early.
    """
    return str(max(1, -int(-error.retry_after.total_seconds() // 1)))


def refuse_foreign(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer what the framework refused."""
    if error.status_code >= 500:
        return fail(request, error)
    code, message = FOREIGN.get(error.status_code, FOREIGN[400])
    status = error.status_code if error.status_code in FOREIGN else 400
    headers = dict(error.headers or {}) if status == 405 else {}
    return _error(status, code, message, {}, headers)


def fail(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer what nobody expected: it goes to the log, and none of it to the caller."""
    log.error("%s %s failed", request.method, request.scope.get("path_template"), exc_info=error)
    return _error(500, "internal", "The server failed; its log says more.", {}, {})


def _error(
    status: int, code: str, message: str, details: dict[str, Any], headers: dict[str, str]
) -> Response[bytes]:
    body = ENCODER.encode(ErrorAnswer(ErrorValue(code, message, details)))
    return Response(body, status_code=status, media_type="application/json", headers=headers)


async def before_send(message: Message, scope: Scope) -> None:
    """Add the headers that every answer has, and count it."""
    if message["type"] == "http.response.start":
        head: MutableMapping[str, Any] = message  # type: ignore[assignment]
        head["headers"] = [*head.get("headers", []), *HEADERS]
        template = scope.get("path_template") or "unknown"
        metrics.count(str(scope.get("method")), str(template), message["status"])
