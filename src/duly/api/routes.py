"""Declares routes: the path, the required access, and the request and response bodies.

The declaration is the single source for authentication and for the OpenAPI document; a handler
only translates. Every path is fixed or has the form /v1/COLLECTION/{id}/..., so the route table
finds the route of a request with at most two dictionary lookups, however many routes there are.

Decision: docs/adr/0016-one-http-path.md.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from duly.api.auth import Access
from duly.errors import DulyError, NotFound
from duly.model.tenant import Credential
from duly.server.components import Components

Handler = Callable[[Request], Awaitable[ASGIApp]]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


NO_SUCH_PATH = "There is nothing at this path. The paths of the API are listed at /docs."


class MethodNotAllowed(DulyError):
    """The path exists, but not for this method."""

    code: ClassVar[str] = "method_not_allowed"

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = sorted(allowed)
        super().__init__(
            f"This path does not support this method. Use {', '.join(sorted(allowed))}."
        )


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter of a route."""

    name: str
    description: str
    kind: type = str
    repeatable: bool = False
    minimum: int | None = None
    maximum: int | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a route, used by authorization and by the OpenAPI document."""

    method: Method
    summary: str
    access: Access
    request_body: Any = None
    response_body: Any = None
    statuses: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    query: tuple[Parameter, ...] = ()
    accepts_idempotency_key: bool = False
    media_type: str = "application/json"

    @property
    def parameter_names(self) -> frozenset[str]:
        """Return the names of the query parameters."""
        return frozenset(parameter.name for parameter in self.query)


class Route(NamedTuple):
    """An operation, its handler, and the paths that lead to it."""

    operation: Operation
    paths: tuple[str, ...]
    handler: Handler

    @property
    def name(self) -> str:
        """Return the name of the handler, which is the operation's id in the OpenAPI document."""
        return self.handler.__name__


def route(
    method: Method,
    paths: str | Sequence[str],
    summary: str,
    *,
    access: Access,
    request_body: Any = None,
    response_body: Any = None,
    statuses: tuple[int, ...] = (200,),
    errors: tuple[int, ...] = (),
    query: tuple[Parameter, ...] = (),
    accepts_idempotency_key: bool = False,
    media_type: str = "application/json",
) -> Callable[[Handler], Route]:
    """Decorate a handler as a route."""
    operation = Operation(
        method=method,
        summary=summary,
        access=access,
        request_body=request_body,
        response_body=response_body,
        statuses=statuses,
        errors=errors,
        query=query,
        accepts_idempotency_key=accepts_idempotency_key,
        media_type=media_type,
    )
    all_paths = (paths,) if isinstance(paths, str) else tuple(paths)
    return lambda handler: Route(operation, all_paths, handler)


class Match(NamedTuple):
    """The route of a request, the path it was declared with, and the id in the request's path."""

    route: Route
    template: str
    path_params: Mapping[str, str]


class RouteTable:
    """All routes of the API, by path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._methods: dict[str, dict[str, Route]] = {}
        for declared in routes:
            for path in declared.paths:
                self._methods.setdefault(path, {})[declared.operation.method] = declared

    def __iter__(self) -> Iterator[tuple[str, Route]]:
        """Yield every path with each of its routes."""
        for path, methods in self._methods.items():
            for declared in methods.values():
                yield path, declared

    def find(self, method: str, path: str) -> Match:
        """Return the route of a request; raises NotFound or MethodNotAllowed."""
        template, path_params = path, NO_PARAMS
        methods = self._methods.get(path)
        if methods is None:
            template, path_params = _template_of(path)
            methods = self._methods.get(template)
            if methods is None:
                raise NotFound(NO_SUCH_PATH)
        route = methods.get(method)
        if route is None:
            raise MethodNotAllowed(methods)
        return Match(route, template, path_params)


NO_PARAMS: Mapping[str, str] = {}
STAGES_PREFIX = "/v1/attempt/stages/"


def _template_of(path: str) -> tuple[str, Mapping[str, str]]:
    """Return the path with its fourth segment replaced by {id}, without a trailing slash.

    Only the name of a stage comes later, and may have slashes itself.
    """
    if path.startswith(STAGES_PREFIX):
        return STAGES_PREFIX + "{name}", {"name": path.removeprefix(STAGES_PREFIX)}
    segments = path.rstrip("/").split("/", 4)
    if len(segments) < 4:
        return "/".join(segments), NO_PARAMS
    path_params = {"id": segments[3]}
    segments[3] = "{id}"
    return "/".join(segments), path_params


def components_of(request: Request) -> Components:
    """Return the components of this server."""
    components: Components = request.app.components
    return components


def credential_of(request: Request) -> Credential:
    """Return the caller's credential, which the guard has stored."""
    credential: Credential = request.scope["auth"]
    return credential
