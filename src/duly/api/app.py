"""The ASGI application of a server's REST API: routing, authorization, error handling."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly.api import docs
from duly.api.accounts import (
    audit,
    downstreams,
    keys,
    limits,
    login,
    plans,
    tenants,
    tiers,
    usage,
    users,
)
from duly.api.auth import guard
from duly.api.error_responses import error_response
from duly.api.fleet import gateway, metrics, nodes, queues, resources, servers, status
from duly.api.routes import Route, RouteTable
from duly.api.schedules import schedule_history, schedules
from duly.api.tasks import (
    artifacts,
    attempt,
    attempt_stages,
    attempts,
    cancel,
    dead_letters,
    graph_operations,
    graphs,
    logs,
    mark,
    pause,
    tasks,
    wait,
)
from duly.errors import Unavailable
from duly.server.components import Components

SECURITY_HEADERS = [
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
"""Added to every response."""
UNKNOWN_ROUTE = "unknown"
"""The metrics label of requests to paths that do not exist."""


def create_app(components: Components) -> "Application":
    """Return the ASGI application that serves the components of one server."""
    described = [
        *tasks.HANDLERS,
        *attempts.HANDLERS,
        *cancel.HANDLERS,
        *mark.HANDLERS,
        *wait.HANDLERS,
        *pause.HANDLERS,
        *logs.HANDLERS,
        *graphs.HANDLERS,
        *graph_operations.HANDLERS,
        *dead_letters.HANDLERS,
        *nodes.HANDLERS,
        *servers.HANDLERS,
        *resources.HANDLERS,
        *queues.HANDLERS,
        *schedules.HANDLERS,
        *schedule_history.HANDLERS,
        *artifacts.HANDLERS,
        *plans.HANDLERS,
        *tiers.HANDLERS,
        *downstreams.HANDLERS,
        *limits.HANDLERS,
        *tenants.HANDLERS,
        *users.HANDLERS,
        *keys.HANDLERS,
        *login.HANDLERS,
        *audit.HANDLERS,
        *usage.HANDLERS,
        *gateway.HANDLERS,
        *attempt.HANDLERS,
        *attempt_stages.HANDLERS,
        *status.HANDLERS,
        *metrics.HANDLERS,
    ]
    return Application(components, [*described, *docs.handlers(described)])


class Application:
    """Finds the route of a request, authorizes the caller and runs the handler."""

    def __init__(self, components: Components, routes: list[Route]) -> None:
        self.components = components
        self.routes = RouteTable(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        scope["app"] = self
        request = Request(scope, receive)
        is_started = False

        async def send_more(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                _on_response_start(scope, message)
            await send(message)

        try:
            response = await self._respond(request)
            await response(scope, receive, send_more)
        except (Exception, asyncio.CancelledError) as error:
            if is_started:
                # The status is sent; only a broken connection tells the client that it failed.
                raise
            if isinstance(error, asyncio.CancelledError):
                # Only a server that stops cancels requests, those that take too long.
                error = Unavailable("This server is stopping. Try again.")
            await error_response(request, error)(scope, receive, send_more)

    async def _respond(self, request: Request) -> ASGIApp:
        scope = request.scope
        match = self.routes.find(scope["method"], scope["path"])
        scope["route"], scope["path_template"], scope["path_params"] = match
        await guard(request)
        return await match.route.handler(request)


def _on_response_start(scope: Scope, message: Any) -> None:
    """Add the headers common to all responses, and count the response."""
    message["headers"] = [*message["headers"], *SECURITY_HEADERS]
    template = scope.get("path_template", UNKNOWN_ROUTE)
    metrics.count_responses(scope["method"], template, message["status"])
