"""The route that lists the servers and the duties that each leads."""

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.fleet import fleet_shapes
from duly.api.requests.lookups import cross_tenant_connection
from duly.api.requests.query import query_of
from duly.api.requests.whole_lists import page_of
from duly.api.responses import as_json
from duly.api.routes import components_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.server.cluster.cluster_manager import SERVER_TIMEOUT
from duly.store.fleet import overview

LISTED_AFTER_LAST_HEARTBEAT = timedelta(days=1)
"""How long a lost server is still listed."""


@route(
    "GET",
    "/v1/servers",
    "List the servers",
    access=Access.ADMIN,
    response_body=task_shapes.Page[fleet_shapes.Server],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_servers(request: Request) -> Response:
    """List the servers by number, with the duties that each leads."""
    query = query_of(request)
    async with cross_tenant_connection(components_of(request)) as conn:
        rows = await overview.read_servers(
            conn, silence=SERVER_TIMEOUT, listed=LISTED_AFTER_LAST_HEARTBEAT
        )
    page, cursor = page_of(rows, query, lambda view: str(view.number))
    return as_json(task_shapes.Page([fleet_shapes.server(view) for view in page], cursor))


HANDLERS = [list_servers]
