"""Litestar, with a straight way to the routes whose path is always the same.

A request takes 60 µs from the framework's door to a handler and back. Most of it goes into
what our routes do without: parameters in the path, dependencies, guards of its own, wrappers
around wrappers. Where the path says everything (submits, batches, all that nodes send), the
handler is looked up by it and called; the caller is checked by the same guard, and what goes
wrong is answered by the same functions. Whatever is not found here, Litestar looks for.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from litestar import Litestar, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import Receive, Scope, Send

from duly.api import metrics
from duly.api.answer import WRITE, Answer
from duly.api.auth import guard

Headers = Sequence[tuple[bytes, bytes]]
Refuse = Callable[[Request[Any, Any, Any], Exception], Response[bytes]]
Way = tuple[HTTPRouteHandler, Callable[[Any], Awaitable[Answer]], str]


class Asked(Request[Any, Any, Any]):
    """A request as our handlers look at it: its scope, its body, the application.

    All else that Litestar keeps for one is left out: it takes time to make, and nobody reads it.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope  # type: ignore[assignment]
        self.receive = receive


class Straight(Litestar):
    """The framework for our kind of values alone, and what it need not be asked for.

    By itself it looks for every kind that is installed, and pydantic alone costs 9 MB.
    """

    def __init__(self, *, headers: Headers, refuse: Refuse, **options: Any) -> None:
        super().__init__(**options)
        self._headers = headers
        self._lines = b"".join(b"%b: %b\r\n" % line for line in headers)
        self._refuse = refuse
        self.ways: dict[tuple[str, str], Way] = {
            (method, route.path): (handler, handler.fn, route.path)
            for route in self.routes
            for handler in getattr(route, "route_handlers", ())
            for method in handler.http_methods
            if "{" not in route.path and "operation" in handler.opt
        }
        """The handlers of paths without parameters, by method and path."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        way = self.ways.get((scope.get("method"), scope.get("path")))
        if way is None:
            await super().__call__(scope, receive, send)
        else:
            await self._go(way, scope, receive, send)

    async def _go(self, way: Way, scope: Any, receive: Receive, send: Send) -> None:
        handler, call, path = way
        scope["app"] = scope["litestar_app"] = self
        scope["route_handler"] = handler
        scope["path_template"] = path
        scope["path_params"] = {}
        request = Asked(scope, receive)
        try:
            await guard(request)
            answer = await call(request)
        except Exception as error:
            await self._tell(error, scope, receive, send)
            return
        metrics.count(scope["method"], path, answer.status)
        write = scope.get(WRITE)
        if write is None or not write(scope, answer, self._lines):
            answer.headers += self._headers
            await answer(scope, receive, send)

    async def _tell(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        request: Request[Any, Any, Any] = Request(scope, receive, send)
        response = self._refuse(request, error).to_asgi_response(app=None, request=request)
        await response(scope, receive, self._wrap_send(send, scope))
