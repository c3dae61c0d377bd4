"""Routes for tiers: named amounts of resources, for all tenants or for one."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts import plan_shapes
from duly.api.accounts.plan_shapes import TierInfo
from duly.api.auth import Access
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import name_of, not_found, tenant_connection
from duly.api.requests.query import query_of
from duly.api.requests.whole_lists import page_of
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Forbidden
from duly.model.requests.tier_request import TierChange, TierRequest
from duly.model.tenant import Credential, Scope
from duly.store.accounts import tiers

TIERS_PATH = "/v1/tiers"
TIER_PATH = "/v1/tiers/{id}"
TIER_DECODER = msgspec.json.Decoder(TierRequest)
CHANGE_DECODER = msgspec.json.Decoder(TierChange)


@route(
    "GET",
    TIERS_PATH,
    "List the tiers of the caller's tenant",
    access=Access.READ,
    response_body=Page[TierInfo],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_tiers(request: Request) -> Response:
    """List the tiers: built-in ones, those for all tenants, and the tenant's own."""
    query = query_of(request)
    items, cursor = page_of(await _visible_tiers(request), query, lambda tier: tier.name)
    return as_json(Page(list(items), cursor))


@route(
    "GET",
    TIER_PATH,
    "Get a tier",
    access=Access.READ,
    response_body=TierInfo,
    errors=(404, 422),
)
async def get_tier(request: Request) -> Response:
    """Get a tier as the caller's tenant sees it."""
    query_of(request)
    return await _respond(request, name_of(request))


@route(
    "POST",
    TIERS_PATH,
    "Create a tier",
    access=Access.MANAGE,
    request_body=TierRequest,
    response_body=TierInfo,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_tier(request: Request) -> Response:
    """Create a tier for the tenant, within its plan, or for everyone."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await decode_body(request, TIER_DECODER)
    _check_may_change(credential, everyone=body.everyone)
    creation = components.plans.create_tier(
        credential, body.name, body.resources, everyone=body.everyone
    )
    await components.timeouts.writing(creation)
    return await _respond(request, body.name, 201)


@route(
    "PATCH",
    TIER_PATH,
    "Update a tier",
    access=Access.MANAGE,
    request_body=TierChange,
    response_body=TierInfo,
    errors=(404, 409, 413, 422),
)
async def update_tier(request: Request) -> Response:
    """Update the given resources of a tier, for the tenant or for everyone."""
    components, credential = components_of(request), credential_of(request)
    name = name_of(request)
    query_of(request)
    body = await decode_body(request, CHANGE_DECODER)
    _check_may_change(credential, everyone=body.everyone)
    update = components.plans.update_tier(credential, name, body.resources, everyone=body.everyone)
    await components.timeouts.writing(update)
    return await _respond(request, name)


@route(
    "DELETE",
    TIER_PATH,
    "Remove a tier",
    access=Access.MANAGE,
    statuses=(204,),
    query=(
        Parameter("everyone", "Remove the tier for everyone instead of the tenant's own.", bool),
    ),
    errors=(404, 409, 422),
)
async def remove_tier(request: Request) -> Response:
    """Remove a tier. Its name then refers to the one it overrode, if any."""
    components, credential = components_of(request), credential_of(request)
    everyone = query_of(request).flag("everyone")
    _check_may_change(credential, everyone=everyone)
    removal = components.plans.remove_tier(credential, name_of(request), everyone=everyone)
    await components.timeouts.writing(removal)
    return no_content()


def _check_may_change(credential: Credential, *, everyone: bool) -> None:
    if everyone and Scope.ADMIN not in credential.scopes:
        raise Forbidden(
            "Only a key with the scope 'admin' may change tiers for everyone.", scope="admin"
        )


async def _visible_tiers(request: Request) -> list[TierInfo]:
    credential = credential_of(request)
    async with tenant_connection(components_of(request), credential) as conn:
        stored = await tiers.read(conn, credential.tenant_id)
    return plan_shapes.tiers(stored, credential.plan)


async def _respond(request: Request, name: str, status: int = 200) -> Response:
    for tier in await _visible_tiers(request):
        if tier.name == name:
            return as_json(tier, status)
    raise not_found("tier", name)


HANDLERS = [list_tiers, get_tier, create_tier, update_tier, remove_tier]
