"""Routes that say what they are: who may call them, what they take and what they answer.

The declaration is the single source for the check of the caller and for the
OpenAPI document; a handler only translates.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from duly.api.auth import Access
from duly.model.tenant import Credential
from duly.server.parts import Parts

ApiRequest = Request[Any, Any, State]
Handler = Callable[[ApiRequest], Awaitable[Any]]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


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
) -> HTTPRouteHandler:
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
    return HTTPRouteHandler(
        path=paths if isinstance(paths, str) else list(paths),
        http_method=method,
        status_code=200,
        opt={"operation": operation},
        include_in_schema=False,
    )


def parts_of(request: ApiRequest) -> Parts:
    """Return the components of this server."""
    parts: Parts = request.scope["litestar_app"].state["parts"]
    return parts


def credential_of(request: ApiRequest) -> Credential:
    """Return who is calling, as the guard found out."""
    credential: Credential = request.scope["auth"]
    return credential
