"""What the caller's tenant may have, and what is left of it."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api import plan_shapes
from duly.api.auth import Access
from duly.api.query import query_of
from duly.api.rate_headers import add_headers, headers_of
from duly.api.reading import overseeing
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.store import limits


@route(
    "GET",
    "/v1/limits",
    "See what the tenant may have, and what is left",
    access=Access.READ,
    gives=plan_shapes.Limits,
)
async def get_limits(request: Request) -> Response:
    """Return every limit of the plan beside what is used of it."""
    credential, parts = credential_of(request), parts_of(request)
    query_of(request)
    async with overseeing(parts) as conn:
        used = await limits.read_used(conn, credential.tenant_id)
    found = plan_shapes.limits(credential.tenant, credential.plan, used, parts.settings)
    answer = as_json(found)
    if found.rate is not None:
        add_headers(answer, headers_of(found.rate.burst, found.rate.left, found.rate.full_in))
    return answer


HANDLERS = [get_limits]
