"""The servers: which there are, and what each of them leads."""

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from duly.api import cluster_shapes, shapes
from duly.api.auth import Access
from duly.api.query import query_of
from duly.api.reading import overseeing
from duly.api.responses import as_json
from duly.api.routes import parts_of, route
from duly.server.cluster_manager import SILENCE
from duly.store import overview

LISTED = timedelta(days=1)
"""How long a server that is gone without a word is still listed."""


@route(
    "GET",
    "/v1/servers",
    "List the servers",
    access=Access.ADMIN,
    gives=shapes.Page[cluster_shapes.Server],
)
async def list_servers(request: Request) -> Response:
    """Return the servers by number, with what each leads; there are never many."""
    query_of(request)
    async with overseeing(parts_of(request)) as conn:
        found = await overview.read_servers(conn, silence=SILENCE, listed=LISTED)
    return as_json(shapes.Page([cluster_shapes.server(view) for view in found], None))


HANDLERS = [list_servers]
