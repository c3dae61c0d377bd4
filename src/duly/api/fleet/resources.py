"""Routes for allocations of node resources: running tasks, and reservations."""

from datetime import datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.fleet import fleet_shapes
from duly.api.fleet.nodes import find_node
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import (
    cross_tenant_connection,
    id_of,
    not_found,
    scoped_connection,
    tenant_connection,
)
from duly.api.requests.query import encode_cursor, query_of
from duly.api.requests.tenant_selection import TenantPage, covers_all_tenants
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.duration import parse_duration, parse_time
from duly.errors import Invalid
from duly.model.requests.amounts import ResourcesRequest, apply_amounts
from duly.model.resources import NO_RESOURCES
from duly.store import database
from duly.store.database import Connection
from duly.store.fleet import reservations

RESOURCE_PATH = "/v1/resources/{id}"
MAX_LIFETIME = timedelta(days=3653)


class ReservationRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/resources; without `node`, any node where it fits is chosen."""

    resources: ResourcesRequest
    node: str | None = None
    expires_at: str | None = None
    expires_in: float | str | None = None


class ReservationChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PUT /v1/resources/{id}; absent fields stay unchanged, a null time is no end."""

    resources: ResourcesRequest | None = None
    expires_at: str | msgspec.UnsetType | None = msgspec.UNSET
    expires_in: float | str | msgspec.UnsetType | None = msgspec.UNSET


RESERVATION_DECODER = msgspec.json.Decoder(ReservationRequest)
CHANGE_DECODER = msgspec.json.Decoder(ReservationChange)


@route(
    "GET",
    "/v1/resources",
    "List allocations, newest first",
    access=Access.READ,
    response_body=TenantPage[fleet_shapes.Allocation],
    query=(Parameter("node", "The name of the node."), *PAGE_PARAMETERS),
    errors=(422,),
)
async def list_resources(request: Request) -> Response:
    """List the resources held by running tasks and by reservations, newest first.

    Administrators list those of all tenants, unless they name one.
    """
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before_id()
    all_of_them = covers_all_tenants(credential, query)
    connection = scoped_connection(components_of(request), credential, all_tenants=all_of_them)
    async with connection as conn:
        rows = await reservations.read_allocations(
            conn,
            None if all_of_them else credential.tenant_id,
            before=before,
            limit=limit + 1,
            node=query.get("node"),
        )
    return as_json(
        TenantPage(
            [fleet_shapes.allocation(row) for row in rows[:limit]],
            encode_cursor(rows[limit - 1].id) if len(rows) > limit else None,
            None if all_of_them else credential.tenant,
        )
    )


@route(
    "GET",
    RESOURCE_PATH,
    "Get an allocation",
    access=Access.READ,
    response_body=fleet_shapes.Allocation,
    errors=(404,),
)
async def get_resource(request: Request) -> Response:
    """Get a reservation, or the resources of a running task."""
    all_of_them = covers_all_tenants(credential_of(request), query_of(request))
    return await _respond(request, id_of(request, "allocation"), all_tenants=all_of_them)


@route(
    "POST",
    "/v1/resources",
    "Reserve resources",
    access=Access.MANAGE,
    request_body=ReservationRequest,
    response_body=fleet_shapes.Allocation,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def reserve(request: Request) -> Response:
    """Reserve resources of a node until the reservation expires or is released."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await decode_body(request, RESERVATION_DECODER)
    resources = apply_amounts(body.resources, NO_RESOURCES)
    if not any(amount for _, amount in resources.items()):
        raise Invalid("resources", "it is empty. Give amounts to reserve, such as cpu.")
    async with cross_tenant_connection(components) as conn:
        node_id = None if body.node is None else await _agent_id(conn, body.node)
        expires_at = await _expiry(conn, body.expires_at, body.expires_in)
    reservation_id = await components.timeouts.writing(
        components.reservations.reserve(
            credential, resources, node_id=node_id, expires_at=expires_at
        )
    )
    return await _respond(request, reservation_id, 201)


@route(
    "PUT",
    RESOURCE_PATH,
    "Change a reservation",
    access=Access.MANAGE,
    request_body=ReservationChange,
    response_body=fleet_shapes.Allocation,
    errors=(404, 409, 413, 422, 429),
)
async def change_reservation(request: Request) -> Response:
    """Change the amounts or the end of a reservation, which stays on its node."""
    components, credential = components_of(request), credential_of(request)
    reservation_id = id_of(request, "reservation")
    query_of(request)
    body = await decode_body(request, CHANGE_DECODER)
    async with tenant_connection(components, credential) as conn:
        old = await reservations.find(conn, credential.tenant_id, reservation_id)
        if old is None:
            raise not_found("reservation", reservation_id)
        expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
        if body.expires_at is not msgspec.UNSET or body.expires_in is not msgspec.UNSET:
            at = None if body.expires_at is msgspec.UNSET else body.expires_at
            lifetime = None if body.expires_in is msgspec.UNSET else body.expires_in
            expires_at = await _expiry(conn, at, lifetime)
    resources = None if body.resources is None else apply_amounts(body.resources, old.resources)
    await components.timeouts.writing(
        components.reservations.change(credential, reservation_id, resources, expires_at)
    )
    return await _respond(request, reservation_id)


@route(
    "DELETE",
    RESOURCE_PATH,
    "Release a reservation",
    access=Access.MANAGE,
    statuses=(204,),
    errors=(404,),
)
async def release(request: Request) -> Response:
    """Release a reservation."""
    query_of(request)
    components, reservation_id = components_of(request), id_of(request, "reservation")
    await components.timeouts.writing(
        components.reservations.release(credential_of(request), reservation_id)
    )
    return no_content()


async def _respond(
    request: Request, allocation_id: int, status: int = 200, *, all_tenants: bool = False
) -> Response:
    credential = credential_of(request)
    connection = scoped_connection(components_of(request), credential, all_tenants=all_tenants)
    async with connection as conn:
        rows = await reservations.read_allocations(
            conn, None if all_tenants else credential.tenant_id, allocation_id=allocation_id
        )
    if not rows:
        raise not_found("allocation", allocation_id)
    return as_json(fleet_shapes.allocation(rows[0]), status)


async def _expiry(
    conn: Connection, at: str | None, expires_in: float | str | None
) -> datetime | None:
    if at is not None and expires_in is not None:
        raise Invalid("expires_in", "expires_at is given, too. Give only one of them.")
    now = await database.now(conn)
    if expires_in is not None:
        lifetime = parse_duration(expires_in, "expires_in")
        if not timedelta(0) < lifetime <= MAX_LIFETIME:
            raise Invalid("expires_in", "it must be more than 0 and at most 10 years.")
        return now + lifetime
    expires_at = None if at is None else parse_time(at, "expires_at")
    if expires_at is not None and expires_at <= now:
        raise Invalid("expires_at", "it is not in the future.")
    return expires_at


async def _agent_id(conn: Connection, text: str) -> int:
    """Return the id of an agent's node; raises NotFound. Nothing is reserved on workers."""
    node = await find_node(conn, text)
    if node.tenant is not None:
        raise not_found("node", text)
    return node.id


HANDLERS = [list_resources, get_resource, reserve, change_reservation, release]
