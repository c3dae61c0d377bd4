"""Tenants: an administrator sees and changes all of them, everybody else looks at its own."""

from contextlib import AbstractAsyncContextManager

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.body import read_as
from duly.api.people import Tenant, id_or_name, tenant_answer
from duly.api.query import query_of, write_cursor
from duly.api.reading import not_found, seeing
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.api.shapes import Page
from duly.api.tasks import PAGE
from duly.errors import Invalid
from duly.model.tenant import Scope
from duly.store import tenants
from duly.store.database import Connection

ONE = "/v1/tenants/{id}"


class TenantRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tenants; without a plan it is `free`."""

    name: str
    plan: str | None = None


class TenantChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/tenants/{id}; what is left out stays."""

    name: str | None = None
    plan: str | None = None


TENANT = msgspec.json.Decoder(TenantRequest)
CHANGE = msgspec.json.Decoder(TenantChange)


@route(
    "POST",
    "/v1/tenants",
    "Create a tenant",
    access=Access.ADMIN,
    takes=TenantRequest,
    gives=Tenant,
    statuses=(201,),
    errors=(409, 413, 422),
)
async def create_tenant(request: Request) -> Response:
    """Make a tenant with a plan."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    asked = await read_as(request, TENANT)
    made = await parts.timeouts.writing(parts.tenants.create(credential, asked.name, asked.plan))
    return await _answer(request, made, 201)


@route(
    "GET",
    "/v1/tenants",
    "List the tenants, newest first",
    access=Access.READ,
    gives=Page[Tenant],
    query=PAGE,
    errors=(422,),
)
async def list_tenants(request: Request) -> Response:
    """Return a page of the tenants; of its own alone to whoever is no administrator."""
    query = query_of(request)
    limit, before = query.limit(), query.before()
    own = None if _sees_all(request) else credential_of(request).tenant_id
    async with _seeing(request) as conn:
        found = await tenants.read(conn, tenant_id=own, before=before, limit=limit + 1)
    cursor = write_cursor(found[limit - 1].public_id) if len(found) > limit else None
    return as_json(Page([tenant_answer(one) for one in found[:limit]], cursor))


@route("GET", ONE, "Look at a tenant", access=Access.READ, gives=Tenant, errors=(404,))
async def get_tenant(request: Request) -> Response:
    """Return a tenant by its id or its name."""
    query_of(request)
    async with _seeing(request) as conn:
        return as_json(tenant_answer(await _find(conn, request)))


@route(
    "PATCH",
    ONE,
    "Change a tenant's plan or name",
    access=Access.ADMIN,
    takes=TenantChange,
    gives=Tenant,
    errors=(404, 409, 413, 422),
)
async def update_tenant(request: Request) -> Response:
    """Change a tenant; what it has submitted before stays as it was."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    asked = await read_as(request, CHANGE)
    if asked.name is None and asked.plan is None:
        raise Invalid("plan", "Say what to change: plan, name, or both.")
    found = await _look_up(request)
    change = parts.tenants.update(credential, found.id, name=asked.name, plan=asked.plan)
    await parts.timeouts.writing(change)
    return await _answer(request, found.id)


@route(
    "POST",
    f"{ONE}/suspend",
    "Suspend a tenant",
    access=Access.ADMIN,
    gives=Tenant,
    errors=(404, 409),
)
async def suspend_tenant(request: Request) -> Response:
    """Let a tenant look and do nothing else; nothing of it starts until it is resumed."""
    parts, found = parts_of(request), await _look_up(request)
    await parts.timeouts.writing(parts.tenants.suspend(credential_of(request), found.id))
    return await _answer(request, found.id)


@route("POST", f"{ONE}/resume", "Resume a tenant", access=Access.ADMIN, gives=Tenant, errors=(404,))
async def resume_tenant(request: Request) -> Response:
    """Let a suspended tenant go on where it was."""
    parts, found = parts_of(request), await _look_up(request)
    await parts.timeouts.writing(parts.tenants.resume(credential_of(request), found.id))
    return await _answer(request, found.id)


@route("DELETE", ONE, "Remove a tenant", access=Access.ADMIN, statuses=(204,), errors=(404, 409))
async def remove_tenant(request: Request) -> Response:
    """Remove a tenant that has no live tasks, with its users and keys, for good."""
    parts, found = parts_of(request), await _look_up(request)
    await parts.timeouts.writing(parts.tenants.remove(credential_of(request), found.id))
    return no_content()


def _seeing(request: Request) -> AbstractAsyncContextManager[Connection]:
    credential = credential_of(request)
    return seeing(parts_of(request), credential, everybody=_sees_all(request))


def _sees_all(request: Request) -> bool:
    return Scope.ADMIN in credential_of(request).scopes


async def _look_up(request: Request) -> tenants.Tenant:
    query_of(request)
    async with _seeing(request) as conn:
        return await _find(conn, request)


async def _find(conn: Connection, request: Request) -> tenants.Tenant:
    public_id, name = id_or_name(request)
    found = await tenants.read(conn, public_id=public_id, name=name)
    if not found or not (_sees_all(request) or found[0].id == credential_of(request).tenant_id):
        raise not_found("tenant", request.path_params["id"])
    return found[0]


async def _answer(request: Request, tenant_id: int, status: int = 200) -> Response:
    async with _seeing(request) as conn:
        found = await tenants.read(conn, tenant_id=tenant_id)
    if not found:
        raise not_found("tenant", tenant_id)
    return as_json(tenant_answer(found[0]), status)


HANDLERS = [
    create_tenant,
    list_tenants,
    get_tenant,
    update_tenant,
    suspend_tenant,
    resume_tenant,
    remove_tenant,
]
