"""What became of the fire times of a schedule, and the tasks that they led to."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api import shapes
from duly.api.auth import Access
from duly.api.query import query_of, write_cursor
from duly.api.reading import id_of, reading
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.api.schedule_shapes import FireTime, fire_time
from duly.api.schedules import ONE, find_schedule
from duly.api.tasks import PAGE
from duly.errors import Invalid
from duly.store import edges, schedules, views
from duly.store.database import Connection
from duly.store.schedules import Occurrence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
FURTHEST = datetime(2262, 1, 1, tzinfo=UTC)
ALL = 2**31
"""More tasks than any graph has."""
AT_ONCE = 20
"""How many graphs are looked into at a time, until a page is full."""


class Place(msgspec.Struct, frozen=True):
    """Where a page of tasks ended: so many of this fire time are told, and all of later ones."""

    fire_at: datetime = FURTHEST
    told: int = 0


@route(
    "GET",
    f"{ONE}/tasks",
    "List the tasks of a schedule, newest fire time first",
    access=Access.READ,
    gives=shapes.Page[shapes.Task],
    query=PAGE,
    errors=(404, 422),
)
async def list_schedule_tasks(request: Request) -> Response:
    """Return a page of what a schedule has submitted, as far as it is remembered.

    The tasks of a graph come together, upstreams first.
    """
    credential, query = credential_of(request), query_of(request)
    limit, after = query.limit(), _read_place(query.one("cursor"))
    async with reading(parts_of(request), credential) as conn:
        found = await schedules.read_occurrences(
            conn,
            credential.tenant_id,
            id_of(request, "schedule"),
            before=after.fire_at + MOMENT,
            limit=limit + 2,
            that_ran=True,
        )
        if not found:
            await find_schedule(request, conn, id_of(request, "schedule"))
        ids, more = await _tasks_of(conn, credential.tenant_id, found, after, limit)
        tasks = {one.id: one for one in await views.read_many(conn, credential.tenant_id, ids)}
    scheduling = parts_of(request).settings.scheduling
    items = [shapes.task(tasks[one], credential.tenant, scheduling) for one in ids if one in tasks]
    return as_json(shapes.Page(items, None if more is None else _write_place(more)))


@route(
    "GET",
    f"{ONE}/occurrences",
    "List what became of the fire times of a schedule, newest first",
    access=Access.READ,
    gives=shapes.Page[FireTime],
    query=PAGE,
    errors=(404, 422),
)
async def list_occurrences(request: Request) -> Response:
    """Return a page of fire times, each with its task or graph, or the reason why it has none."""
    schedule_id, query = id_of(request, "schedule"), query_of(request)
    limit, before = query.limit(), FURTHEST
    if query.one("cursor") is not None:
        before = min(EPOCH + query.before() * MOMENT, FURTHEST)
    tenant_id = credential_of(request).tenant_id
    async with reading(parts_of(request), credential_of(request)) as conn:
        found = await schedules.read_occurrences(
            conn, tenant_id, schedule_id, before=before, limit=limit + 1
        )
        if not found:
            await find_schedule(request, conn, schedule_id)
    last = found[limit - 1].fire_at if len(found) > limit else None
    cursor = None if last is None else write_cursor((last - EPOCH) // MOMENT)
    return as_json(shapes.Page([fire_time(one) for one in found[:limit]], cursor))


async def _tasks_of(
    conn: Connection, tenant_id: int, found: Sequence[Occurrence], after: Place, limit: int
) -> tuple[list[int], Place | None]:
    """Return the ids of a page of tasks, and where it ended if there may be more."""
    ids: list[int] = []
    last = after
    for first in range(0, len(found), AT_ONCE):
        piece = found[first : first + AT_ONCE]
        graphs = [one.graph_id for one in piece if one.graph_id is not None]
        parts = await edges.read_parts(conn, tenant_id, graphs) if graphs else {}
        for one in piece:
            told = after.told if one.fire_at == after.fire_at else 0
            own = [one.task_id] if one.task_id is not None else parts.get(one.graph_id or 0, [])
            took = own[told : told + limit - len(ids)]
            if len(took) < len(own) - told:
                return [*ids, *took], Place(one.fire_at, told + len(took)) if took else last
            ids += took
            last = Place(one.fire_at, ALL)
    return ids, last if len(found) > limit + 1 else None


def _write_place(place: Place) -> str:
    """Write a cursor: within a graph one of its own, else that of a list of fire times."""
    at = (place.fire_at - EPOCH) // MOMENT
    if place.told == ALL:
        return write_cursor(at)
    return base64.urlsafe_b64encode(at.to_bytes(8) + place.told.to_bytes(4)).decode()


def _read_place(text: str | None) -> Place:
    if text is None:
        return Place()
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    at = EPOCH + min(int.from_bytes(raw[:8]), (FURTHEST - EPOCH) // MOMENT) * MOMENT
    if len(raw) not in (8, 12):
        raise Invalid("cursor", "cursor must be the next_cursor of an earlier answer.")
    return Place(at, int.from_bytes(raw[8:]) if len(raw) == 12 else ALL)


HANDLERS = [list_schedule_tasks, list_occurrences]
