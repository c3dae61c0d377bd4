"""Routes for plans. Administrators manage them; a tenant reads its own."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts import plan_shapes
from duly.api.accounts.plan_shapes import PlanInfo
from duly.api.auth import Access
from duly.api.requests.body import decode, decode_body, read_json_body
from duly.api.requests.lookups import cross_tenant_connection, name_of, not_found
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Invalid
from duly.model.requests.plan_request import PlanRequest, plan_from
from duly.model.tenant import Scope
from duly.store.accounts import plans

PLANS_PATH = "/v1/plans"
PLAN_PATH = "/v1/plans/{id}"
MAX_PLAN_ID = 2**31 - 1


class PlanChange(PlanRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/plans/{id}; absent fields stay unchanged, null removes a limit."""

    name: str = ""


PLAN_DECODER = msgspec.json.Decoder(PlanRequest)
CHANGE_DECODER = msgspec.json.Decoder(PlanChange)
FIELDS_DECODER = msgspec.json.Decoder(dict[str, Any])


@route(
    "GET",
    PLANS_PATH,
    "List plans, newest first",
    access=Access.READ,
    response_body=Page[PlanInfo],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_plans(request: Request) -> Response:
    """List plans, newest first. Callers that are not administrators only see their own."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), min(query.before_id(), MAX_PLAN_ID)
    is_admin = Scope.ADMIN in credential.scopes
    own = None if is_admin else credential.plan.name
    async with cross_tenant_connection(components_of(request)) as conn:
        rows = await plans.read(
            conn, name=own, before=before, limit=limit + 1, with_tenants=is_admin
        )
    cursor = encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
    page = [plan_shapes.plan(view) for view in rows[:limit]]
    return as_json(Page(page, cursor))


@route(
    "GET",
    PLAN_PATH,
    "Get a plan",
    access=Access.READ,
    response_body=PlanInfo,
    errors=(404, 422),
)
async def get_plan(request: Request) -> Response:
    """Get a plan. Only administrators see plans other than their own."""
    query_of(request)
    return await _respond(request, name_of(request))


@route(
    "POST",
    PLANS_PATH,
    "Create a plan",
    access=Access.ADMIN,
    request_body=PlanRequest,
    response_body=PlanInfo,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_plan(request: Request) -> Response:
    """Create a plan, which tenants can then be given."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    plan = plan_from(await decode_body(request, PLAN_DECODER))
    await components.timeouts.writing(components.plans.create_plan(credential, plan))
    return await _respond(request, plan.name, 201)


@route(
    "PATCH",
    PLAN_PATH,
    "Update a plan",
    access=Access.ADMIN,
    request_body=PlanChange,
    response_body=PlanInfo,
    errors=(404, 409, 413, 422),
)
async def update_plan(request: Request) -> Response:
    """Update a plan for all of its tenants. Given fields are replaced; null removes a limit."""
    components, credential = components_of(request), credential_of(request)
    name = name_of(request)
    query_of(request)
    body = await read_json_body(request)
    decode(body, CHANGE_DECODER)
    # Decoded again, because an update must tell null from an absent field.
    changes = decode(body, FIELDS_DECODER)
    if not changes:
        raise Invalid(
            "max_running", "there is nothing to change. Give a field such as max_running."
        )
    await components.timeouts.writing(components.plans.update_plan(credential, name, changes))
    return await _respond(request, name)


@route(
    "DELETE",
    PLAN_PATH,
    "Remove a plan",
    access=Access.ADMIN,
    statuses=(204,),
    errors=(404, 409, 422),
)
async def remove_plan(request: Request) -> Response:
    """Remove a plan. One that tenants have is not removed (409)."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    await components.timeouts.writing(components.plans.remove_plan(credential, name_of(request)))
    return no_content()


async def _respond(request: Request, name: str, status: int = 200) -> Response:
    credential = credential_of(request)
    is_admin = Scope.ADMIN in credential.scopes
    async with cross_tenant_connection(components_of(request)) as conn:
        rows = await plans.read(conn, name=name, with_tenants=is_admin)
    # Read in any case: the response time must not reveal whether the plan exists.
    if not rows or (not is_admin and name != credential.plan.name):
        raise not_found("plan", name)
    return as_json(plan_shapes.plan(rows[0]), status)


HANDLERS = [list_plans, get_plan, create_plan, update_plan, remove_plan]
