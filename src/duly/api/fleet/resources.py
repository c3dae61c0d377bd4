"""Who has what of the nodes: tasks that run, and reservations, which are made here."""

from datetime import datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api import cluster_shapes, shapes
from duly.api.auth import Access
from duly.api.body import read_as
from duly.api.nodes import find_node
from duly.api.query import query_of, write_cursor
from duly.api.reading import id_of, not_found, overseeing, reading
from duly.api.responses import as_json, no_content
from duly.api.routes import credential_of, parts_of, route
from duly.api.tasks import PAGE
from duly.duration import parse_duration, parse_time
from duly.errors import Invalid
from duly.model.amounts import ResourcesRequest, amounts_of
from duly.model.resources import NOTHING
from duly.store import database, reservations
from duly.store.database import Connection

ONE = "/v1/resources/{id}"
LONGEST = timedelta(days=3653)


class ReservationRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/resources; without a node it is wherever it fits."""

    resources: ResourcesRequest
    node: str | None = None
    expires_at: str | None = None
    expires_in: float | str | None = None


class ReservationChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PUT /v1/resources/{id}; what is left out stays, null for a time is for good."""

    resources: ResourcesRequest | None = None
    expires_at: str | msgspec.UnsetType | None = msgspec.UNSET
    expires_in: float | str | msgspec.UnsetType | None = msgspec.UNSET


RESERVATION = msgspec.json.Decoder(ReservationRequest)
CHANGE = msgspec.json.Decoder(ReservationChange)


@route(
    "GET",
    "/v1/resources",
    "List who has what of the nodes, newest first",
    access=Access.READ,
    gives=shapes.Page[cluster_shapes.Allocation],
    query=PAGE,
    errors=(422,),
)
async def list_resources(request: Request) -> Response:
    """Return a page of what runs and of what is reserved."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before()
    async with reading(parts_of(request), credential) as conn:
        found = await reservations.read_allocations(
            conn, credential.tenant_id, before=before, limit=limit + 1
        )
    cursor = write_cursor(found[limit - 1].id) if len(found) > limit else None
    return as_json(
        shapes.Page(
            [cluster_shapes.allocation(one, credential.tenant) for one in found[:limit]], cursor
        )
    )


@route(
    "GET",
    ONE,
    "Look at what is allocated",
    access=Access.READ,
    gives=cluster_shapes.Allocation,
    errors=(404,),
)
async def get_resource(request: Request) -> Response:
    """Return a reservation, or what a running task has."""
    query_of(request)
    return await _answer(request, id_of(request, "allocation"))


@route(
    "POST",
    "/v1/resources",
    "Reserve resources",
    access=Access.MANAGE,
    takes=ReservationRequest,
    gives=cluster_shapes.Allocation,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def reserve(request: Request) -> Response:
    """Keep part of a node free of tasks, until it expires or is released."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    asked = await read_as(request, RESERVATION)
    resources = amounts_of(asked.resources, NOTHING)
    if not any(amount for _, amount in resources.items()):
        raise Invalid("resources", "resources is empty; say what to reserve.")
    async with overseeing(parts) as conn:
        node = None if asked.node is None else (await find_node(conn, asked.node)).id
        expires_at = await _expiry(conn, asked.expires_at, asked.expires_in)
    made = await parts.timeouts.writing(
        parts.reservations.reserve(credential, resources, node_id=node, expires_at=expires_at)
    )
    return await _answer(request, made, 201)


@route(
    "PUT",
    ONE,
    "Change a reservation",
    access=Access.MANAGE,
    takes=ReservationChange,
    gives=cluster_shapes.Allocation,
    errors=(404, 409, 413, 422, 429),
)
async def change_reservation(request: Request) -> Response:
    """Change what is reserved, kind by kind, or for how long; it stays on its node."""
    parts, credential = parts_of(request), credential_of(request)
    reservation_id = id_of(request, "reservation")
    query_of(request)
    asked = await read_as(request, CHANGE)
    async with reading(parts, credential) as conn:
        old = await reservations.find(conn, credential.tenant_id, reservation_id)
        if old is None:
            raise not_found("reservation", reservation_id)
        expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
        if asked.expires_at is not msgspec.UNSET or asked.expires_in is not msgspec.UNSET:
            at = None if asked.expires_at is msgspec.UNSET else asked.expires_at
            lasts = None if asked.expires_in is msgspec.UNSET else asked.expires_in
            expires_at = await _expiry(conn, at, lasts)
    resources = None if asked.resources is None else amounts_of(asked.resources, old.resources)
    await parts.timeouts.writing(
        parts.reservations.change(credential, reservation_id, resources, expires_at)
    )
    return await _answer(request, reservation_id)


@route("DELETE", ONE, "Release a reservation", access=Access.MANAGE, statuses=(204,), errors=(404,))
async def release(request: Request) -> Response:
    """Give back what is reserved."""
    query_of(request)
    parts, reservation_id = parts_of(request), id_of(request, "reservation")
    await parts.timeouts.writing(parts.reservations.release(credential_of(request), reservation_id))
    return no_content()


async def _answer(request: Request, allocation_id: int, status: int = 200) -> Response:
    credential = credential_of(request)
    async with reading(parts_of(request), credential) as conn:
        found = await reservations.read_allocations(
            conn, credential.tenant_id, allocation_id=allocation_id
        )
    if not found:
        raise not_found("allocation", allocation_id)
    return as_json(cluster_shapes.allocation(found[0], credential.tenant), status)


async def _expiry(conn: Connection, at: str | None, lasts: float | str | None) -> datetime | None:
    if at is not None and lasts is not None:
        raise Invalid("expires_in", "Give expires_at or expires_in, not both.")
    now = await database.now(conn)
    if lasts is not None:
        length = parse_duration(lasts, "expires_in")
        if not timedelta(0) < length <= LONGEST:
            raise Invalid("expires_in", "expires_in must be more than 0 and at most 10 years.")
        return now + length
    found = None if at is None else parse_time(at, "expires_at")
    if found is not None and found <= now:
        raise Invalid("expires_at", "expires_at must lie ahead.")
    return found


HANDLERS = [list_resources, get_resource, reserve, change_reservation, release]
