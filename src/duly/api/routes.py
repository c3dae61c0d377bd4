"""Routes that declare themselves: who may call them, what they take and what they return.

The declaration is the single source for authentication and for the OpenAPI document; a handler
only translates. The table finds the route of a request by its path. Every path is fixed or has
the form /v1/COLLECTION/{id}/..., so two lookups in a dictionary are enough, however many routes
there are.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from duly.api.auth import Access
from duly.errors import DulyError, NotFound
from duly.model.tenant import Credential
from duly.server.parts import Parts

Handler = Callable[[Request], Awaitable[ASGIApp]]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


class MethodNotAllowed(DulyError):
    """The path exists, but not for this method."""

    code: ClassVar[str] = "method_not_allowed"

    def __init__(self, allowed: Iterable[str]) -> None:
        super().__init__("This path does not take this method.")
        self.allowed = sorted(allowed)


class Parameter(msgspec.Struct, frozen=True):
    """A parameter in the query of a route."""

    name: str
    description: str
    kind: type = str
    several: bool = False
    minimum: int | None = None
    maximum: int | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a route does, for its guard and for whoever reads the reference."""

    method: Method
    summary: str
    access: Access
    takes: Any = None
    gives: Any = None
    statuses: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    query: tuple[Parameter, ...] = ()
    takes_key: bool = False
    media_type: str = "application/json"

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the parameters that it takes."""
        return frozenset(parameter.name for parameter in self.query)


class Route(NamedTuple):
    """An operation, its handler, and the paths that lead to it."""

    operation: Operation
    paths: tuple[str, ...]
    handler: Handler

    @property
    def name(self) -> str:
        """Return the name of the handler, which names the operation in the reference."""
        return self.handler.__name__


def route(
    method: Method,
    paths: str | Sequence[str],
    summary: str,
    *,
    access: Access,
    takes: Any = None,
    gives: Any = None,
    statuses: tuple[int, ...] = (200,),
    errors: tuple[int, ...] = (),
    query: tuple[Parameter, ...] = (),
    takes_key: bool = False,
    media_type: str = "application/json",
) -> Callable[[Handler], Route]:
    """Declare a route; to be used as a decorator."""
    operation = Operation(
        method=method,
        summary=summary,
        access=access,
        takes=takes,
        gives=gives,
        statuses=statuses,
        errors=errors,
        query=query,
        takes_key=takes_key,
        media_type=media_type,
    )
    listed = (paths,) if isinstance(paths, str) else tuple(paths)
    return lambda handler: Route(operation, listed, handler)


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
                raise NotFound("There is nothing at this path.")
        found = methods.get(method)
        if found is None:
            raise MethodNotAllowed(methods)
        return Match(found, template, path_params)


NO_PARAMS: Mapping[str, str] = {}


def _template_of(path: str) -> tuple[str, Mapping[str, str]]:
    """Return the path with {id} for what may be an id in it; a slash at the end does not count."""
    pieces = path.rstrip("/").split("/", 4)
    if len(pieces) < 4:
        return "/".join(pieces), NO_PARAMS
    path_params = {"id": pieces[3]}
    pieces[3] = "{id}"
    return "/".join(pieces), path_params


def parts_of(request: Request) -> Parts:
    """Return the components of this server."""
    parts: Parts = request.app.parts
    return parts


def credential_of(request: Request) -> Credential:
    """Return who is calling, as the guard found out."""
    credential: Credential = request.scope["auth"]
    return credential
