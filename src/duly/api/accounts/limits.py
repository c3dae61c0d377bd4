"""The route that reports a tenant's limits and how much of each is used."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts import plan_shapes
from duly.api.auth import Access
from duly.api.limits.rate_headers import add_headers, bucket_headers
from duly.api.requests.lookups import cross_tenant_connection
from duly.api.requests.query import query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.store.attempts import limits


@route(
    "GET",
    "/v1/limits",
    "Get the tenant's limits and what is left of them",
    access=Access.READ,
    response_body=plan_shapes.Limits,
)
async def get_limits(request: Request) -> Response:
    """Get every limit of the tenant's plan, and how much of it is used."""
    credential, components = credential_of(request), components_of(request)
    query_of(request)
    async with cross_tenant_connection(components) as conn:
        used = await limits.read_current_usage(conn, credential.tenant_id)
    body = plan_shapes.limits(credential.tenant, credential.plan, used, components.settings)
    response = as_json(body)
    if body.rate is not None:
        add_headers(response, bucket_headers(body.rate.burst, body.rate.left, body.rate.full_in))
    return response


HANDLERS = [get_limits]
