"""Routes for the history of a schedule: its occurrences and the tasks they submitted."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.lookups import tenant_connection
from duly.api.requests.names import schedule_id_of
from duly.api.requests.query import encode_cursor, query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.schedules.schedule_shapes import FireTime, fire_time
from duly.api.schedules.schedules import SCHEDULE_PATH, find_schedule
from duly.api.tasks import task_shapes
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.errors import Invalid
from duly.store.database import Connection
from duly.store.tasks import edges, schedules, views
from duly.store.tasks.schedules import Occurrence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MAX_FIRE_TIME = datetime(2262, 1, 1, tzinfo=UTC)
WHOLE_GRAPH = 2**31
"""A position after the last task of any graph."""
OCCURRENCES_PER_READ = 20
"""Occurrences whose graphs are read per query until a page is full."""


class HistoryCursor(msgspec.Struct, frozen=True):
    """The end of a page: the fire time reached, and the number of its tasks already listed."""

    fire_at: datetime = MAX_FIRE_TIME
    listed: int = 0


@route(
    "GET",
    f"{SCHEDULE_PATH}/tasks",
    "List the tasks of a schedule, newest fire time first",
    access=Access.READ,
    response_body=task_shapes.Page[task_shapes.Task],
    query=PAGE_PARAMETERS,
    errors=(404, 409, 422),
)
async def list_schedule_tasks(request: Request) -> Response:
    """List the tasks of a schedule that are still retained, newest fire time first.

    The tasks of a graph are listed together, upstream ones first.
    """
    credential, query = credential_of(request), query_of(request)
    limit, after = query.limit(), _decode_history_cursor(query.get("cursor"))
    schedule_id = await schedule_id_of(request)
    async with tenant_connection(components_of(request), credential) as conn:
        occurrences = await schedules.read_occurrences(
            conn,
            credential.tenant_id,
            schedule_id,
            before=after.fire_at + MICROSECOND,
            limit=limit + 2,
            that_ran=True,
        )
        if not occurrences:
            await find_schedule(request, conn, schedule_id)
        ids, end = await _page_of_tasks(conn, credential.tenant_id, occurrences, after, limit)
        tasks = {view.id: view for view in await views.read_many(conn, credential.tenant_id, ids)}
    scheduling = components_of(request).settings.scheduling
    items = [
        task_shapes.task(tasks[task_id], credential.tenant, scheduling)
        for task_id in ids
        if task_id in tasks
    ]
    return as_json(task_shapes.Page(items, None if end is None else _encode_history_cursor(end)))


@route(
    "GET",
    f"{SCHEDULE_PATH}/occurrences",
    "List the occurrences of a schedule, newest first",
    access=Access.READ,
    response_body=task_shapes.Page[FireTime],
    query=PAGE_PARAMETERS,
    errors=(404, 409, 422),
)
async def list_occurrences(request: Request) -> Response:
    """List the past fire times of a schedule, each with its task, its graph, or why it has none."""
    schedule_id, query = await schedule_id_of(request), query_of(request)
    limit, before = query.limit(), MAX_FIRE_TIME
    if query.get("cursor") is not None:
        before = min(EPOCH + query.before_id() * MICROSECOND, MAX_FIRE_TIME)
    tenant_id = credential_of(request).tenant_id
    async with tenant_connection(components_of(request), credential_of(request)) as conn:
        occurrences = await schedules.read_occurrences(
            conn, tenant_id, schedule_id, before=before, limit=limit + 1
        )
        if not occurrences:
            await find_schedule(request, conn, schedule_id)
    last = occurrences[limit - 1].fire_at if len(occurrences) > limit else None
    cursor = None if last is None else encode_cursor((last - EPOCH) // MICROSECOND)
    items = [fire_time(occurrence) for occurrence in occurrences[:limit]]
    return as_json(task_shapes.Page(items, cursor))


async def _page_of_tasks(
    conn: Connection,
    tenant_id: int,
    occurrences: Sequence[Occurrence],
    after: HistoryCursor,
    limit: int,
) -> tuple[list[int], HistoryCursor | None]:
    """Return the ids of a page of tasks, and its end if there may be more."""
    ids: list[int] = []
    end = after
    for start in range(0, len(occurrences), OCCURRENCES_PER_READ):
        batch = occurrences[start : start + OCCURRENCES_PER_READ]
        graph_ids = [occurrence.graph_id for occurrence in batch if occurrence.graph_id is not None]
        graphs = await edges.read_tasks_of_graphs(conn, tenant_id, graph_ids) if graph_ids else {}
        for occurrence in batch:
            listed = after.listed if occurrence.fire_at == after.fire_at else 0
            tasks = (
                [occurrence.task_id]
                if occurrence.task_id is not None
                else graphs.get(occurrence.graph_id or 0, [])
            )
            fitting = tasks[listed : listed + limit - len(ids)]
            if len(fitting) < len(tasks) - listed:
                if fitting:
                    end = HistoryCursor(occurrence.fire_at, listed + len(fitting))
                return [*ids, *fitting], end
            ids += fitting
            end = HistoryCursor(occurrence.fire_at, WHOLE_GRAPH)
    return ids, end if len(occurrences) > limit + 1 else None


def _encode_history_cursor(end: HistoryCursor) -> str:
    """Return a cursor: with a position within a graph, or that of a list of occurrences."""
    at = (end.fire_at - EPOCH) // MICROSECOND
    if end.listed == WHOLE_GRAPH:
        return encode_cursor(at)
    return base64.urlsafe_b64encode(at.to_bytes(8) + end.listed.to_bytes(4)).decode()


def _decode_history_cursor(text: str | None) -> HistoryCursor:
    if text is None:
        return HistoryCursor()
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    at = EPOCH + min(int.from_bytes(raw[:8]), (MAX_FIRE_TIME - EPOCH) // MICROSECOND) * MICROSECOND
    if len(raw) not in (8, 12):
        raise Invalid("cursor", "it is not the next_cursor of an earlier response.")
    return HistoryCursor(at, int.from_bytes(raw[8:]) if len(raw) == 12 else WHOLE_GRAPH)


HANDLERS = [list_schedule_tasks, list_occurrences]
