"""The REST API of a server, put together."""

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
from duly.api.auth import guard
from duly.api.error_responses import error_response
from duly.api.routes import Route, RouteTable
from duly.server.parts import Parts

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
"""What every response has."""
UNKNOWN = "unknown"
"""The route of a path that is none, in the metrics."""


def create_app(parts: Parts) -> "Application":
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
    return Application(parts, [*described, *docs.handlers(described)])


class Application:
    """The ASGI application: finds the route, checks the caller, answers."""

    def __init__(self, parts: Parts, routes: list[Route]) -> None:
        self.parts = parts
        self.routes = RouteTable(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        scope["app"] = self
        request = Request(scope, receive)
        is_started = False

        async def send_more(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                _begin(scope, message)
            await send(message)

        try:
            response = await self._respond(request)
            await response(scope, receive, send_more)
        except Exception as error:
            if is_started:
                # Nothing more can be said but by breaking off: the client sees it is not whole.
                raise
            await error_response(request, error)(scope, receive, send_more)

    async def _respond(self, request: Request) -> ASGIApp:
        scope = request.scope
        match = self.routes.find(scope["method"], scope["path"])
        scope["route"], scope["path_template"], scope["path_params"] = match
        await guard(request)
        return await match.route.handler(request)


def _begin(scope: Scope, message: Any) -> None:
    """Add the headers that every response has, and count it."""
    message["headers"] = [*message["headers"], *HEADERS]
    template = scope.get("path_template", UNKNOWN)
    metrics.count(scope["method"], template, message["status"])
