"""Routes for tenants. Administrators manage all of them; other callers read their own."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from duly.api.accounts.accounts import Tenant, id_or_name, tenant_response
from duly.api.accounts.tenant_shares import read_shares
from duly.api.auth import Access
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import cross_tenant_connection, not_found, scoped_connection
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.task_shapes import Page
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Invalid
from duly.model.tenant import Scope
from duly.store.accounts import tenants
from duly.store.database import Connection

TENANT_PATH = "/v1/tenants/{id}"


class TenantRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tenants; the default plan is `free`, the default weight the plan's."""

    name: str
    plan: str | None = None
    weight: int | None = None
    fair_users: bool = False


class TenantChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/tenants/{id}; absent fields stay unchanged."""

    name: str | None = None
    plan: str | None = None
    weight: int | UnsetType | None = UNSET
    """Null: that of the plan."""
    fair_users: bool | None = None
    """Whether its users divide its fair share; for tasks that are submitted from then on."""


TENANT_DECODER = msgspec.json.Decoder(TenantRequest)
CHANGE_DECODER = msgspec.json.Decoder(TenantChange)


@route(
    "POST",
    "/v1/tenants",
    "Create a tenant",
    access=Access.ADMIN,
    request_body=TenantRequest,
    response_body=Tenant,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_tenant(request: Request) -> Response:
    """Create a tenant with a plan."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await decode_body(request, TENANT_DECODER)
    tenant_id = await components.timeouts.writing(
        components.tenants.create(
            credential, body.name, body.plan, body.weight, fair_users=body.fair_users
        )
    )
    return await _respond(request, tenant_id, 201)


@route(
    "GET",
    "/v1/tenants",
    "List tenants, newest first",
    access=Access.READ,
    response_body=Page[Tenant],
    query=PAGE_PARAMETERS,
    errors=(422,),
)
async def list_tenants(request: Request) -> Response:
    """List tenants, newest first. Callers that are not administrators only see their own."""
    query = query_of(request)
    limit, before = query.limit(), query.before_id()
    own = None if _is_admin(request) else credential_of(request).tenant_id
    async with _connection(request) as conn:
        rows = await tenants.read(conn, tenant_id=own, before=before, limit=limit + 1)
    cursor = encode_cursor(rows[limit - 1].public_id) if len(rows) > limit else None
    return as_json(Page(await _with_shares(request, rows[:limit]), cursor))


@route("GET", TENANT_PATH, "Get a tenant", access=Access.READ, response_body=Tenant, errors=(404,))
async def get_tenant(request: Request) -> Response:
    """Get a tenant by its id or its name."""
    (shown,) = await _with_shares(request, [await _find_by_path(request)])
    return as_json(shown)


@route(
    "PATCH",
    TENANT_PATH,
    "Update a tenant's plan, shares or name",
    access=Access.ADMIN,
    request_body=TenantChange,
    response_body=Tenant,
    errors=(404, 409, 413, 422),
)
async def update_tenant(request: Request) -> Response:
    """Update a tenant. Tasks that it has submitted already are not affected."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await decode_body(request, CHANGE_DECODER)
    if body == TenantChange():
        raise Invalid("plan", "there is nothing to change. Give plan, weight, fair_users or name.")
    tenant = await _find_by_path(request)
    change = components.tenants.update(
        credential,
        tenant.id,
        name=body.name,
        plan=body.plan,
        weight=body.weight,
        fair_users=body.fair_users,
    )
    await components.timeouts.writing(change)
    return await _respond(request, tenant.id)


@route(
    "POST",
    f"{TENANT_PATH}/suspend",
    "Suspend a tenant",
    access=Access.ADMIN,
    response_body=Tenant,
    errors=(404, 409),
)
async def suspend_tenant(request: Request) -> Response:
    """Suspend a tenant: it may only read, and none of its tasks starts until it is resumed."""
    components, tenant = components_of(request), await _find_by_path(request)
    await components.timeouts.writing(components.tenants.suspend(credential_of(request), tenant.id))
    return await _respond(request, tenant.id)


@route(
    "POST",
    f"{TENANT_PATH}/resume",
    "Resume a tenant",
    access=Access.ADMIN,
    response_body=Tenant,
    errors=(404,),
)
async def resume_tenant(request: Request) -> Response:
    """Resume a suspended tenant."""
    components, tenant = components_of(request), await _find_by_path(request)
    await components.timeouts.writing(components.tenants.resume(credential_of(request), tenant.id))
    return await _respond(request, tenant.id)


@route(
    "DELETE",
    TENANT_PATH,
    "Remove a tenant",
    access=Access.ADMIN,
    statuses=(204,),
    errors=(404, 409),
)
async def remove_tenant(request: Request) -> Response:
    """Remove a tenant with its users and keys. One with live tasks is not removed (409)."""
    components, tenant = components_of(request), await _find_by_path(request)
    await components.timeouts.writing(components.tenants.remove(credential_of(request), tenant.id))
    return no_content()


def _connection(request: Request) -> AbstractAsyncContextManager[Connection]:
    credential = credential_of(request)
    return scoped_connection(components_of(request), credential, all_tenants=_is_admin(request))


def _is_admin(request: Request) -> bool:
    return Scope.ADMIN in credential_of(request).scopes


async def _find_by_path(request: Request) -> tenants.Tenant:
    query_of(request)
    async with _connection(request) as conn:
        return await _find(conn, request)


async def _find(conn: Connection, request: Request) -> tenants.Tenant:
    public_id, name = id_or_name(request)
    rows = await tenants.read(conn, public_id=public_id, name=name)
    if not rows or not (_is_admin(request) or rows[0].id == credential_of(request).tenant_id):
        raise not_found("tenant", request.path_params["id"])
    return rows[0]


async def _respond(request: Request, tenant_id: int, status: int = 200) -> Response:
    async with _connection(request) as conn:
        rows = await tenants.read(conn, tenant_id=tenant_id)
    if not rows:
        raise not_found("tenant", tenant_id)
    (shown,) = await _with_shares(request, rows)
    return as_json(shown, status)


async def _with_shares(request: Request, rows: Sequence[tenants.Tenant]) -> list[Tenant]:
    """Return tenants with their shares, which depend on the tasks of all tenants."""
    components = components_of(request)
    async with cross_tenant_connection(components) as conn:
        shares = await read_shares(conn, components.settings.scheduling, with_fair_shares=True)
    return [tenant_response(row, shares) for row in rows]


HANDLERS = [
    create_tenant,
    list_tenants,
    get_tenant,
    update_tenant,
    suspend_tenant,
    resume_tenant,
    remove_tenant,
]
