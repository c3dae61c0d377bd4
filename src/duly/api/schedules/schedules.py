"""Routes for schedules, which submit a task or a graph repeatedly."""

from collections.abc import Coroutine
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.limits.decoding_limit import SCHEDULE_GRAPH_LIMIT
from duly.api.limits.rate_headers import with_rate_headers
from duly.api.requests.body import decode, read_json_body
from duly.api.requests.lookups import not_found, tenant_connection
from duly.api.requests.names import schedule_id_of
from duly.api.requests.query import Query, encode_cursor, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.schedules.schedule_shapes import Schedule, Times, schedule
from duly.api.tasks import task_shapes
from duly.api.tasks.graphs import GraphIds
from duly.api.tasks.tasks import FIELDS_DECODER, PAGE_PARAMETERS, task_response
from duly.duration import parse_time
from duly.errors import Invalid
from duly.model.requests.graph_request import GraphRequest
from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.model.requests.schedule_request import (
    ScheduleChange,
    ScheduleRequest,
    check_schedule_name,
    parse_misfire,
    parse_overlap,
    schedule_template,
)
from duly.model.requests.task_request import TaskRequest
from duly.model.schedules.recurrence import Recurrence
from duly.policy.schedules.recurrence import fire_times
from duly.server.recurrence import templates
from duly.server.recurrence.schedule_changes import first_fire_time
from duly.store import database
from duly.store.database import Connection
from duly.store.tasks import schedules
from duly.store.tasks.schedules import StoredSchedule

SCHEDULES_PATH = "/v1/schedules"
SCHEDULE_PATH = "/v1/schedules/{id}"
DEFAULT_TIMES = 10
MAX_TIMES = 1000


class PreviewRequest(RecurrenceRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/schedules/preview: a schedule, whose task or graph may be left out."""

    name: str | None = None
    task: TaskRequest | None = None
    graph: GraphRequest | None = None
    misfire: str | None = None
    overlap: str | None = None
    count: int | None = None
    after: str | None = None


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/schedules/{id}/backfill: an inclusive range of time."""

    start_at: str
    end_at: str


SCHEDULE_DECODER = msgspec.json.Decoder(ScheduleRequest)
CHANGE_DECODER = msgspec.json.Decoder(ScheduleChange)
PREVIEW_DECODER = msgspec.json.Decoder(PreviewRequest)
BACKFILL_DECODER = msgspec.json.Decoder(BackfillRequest)


@route(
    "POST",
    SCHEDULES_PATH,
    "Create a schedule",
    access=Access.SUBMIT,
    request_body=ScheduleRequest,
    response_body=Schedule,
    statuses=(201,),
    errors=(404, 413, 422, 429),
)
async def create_schedule(request: Request) -> Response:
    """Create a schedule. The response has its first fire time as `next_run_at`."""
    components = components_of(request)
    query_of(request)
    body = decode(await read_json_body(request), SCHEDULE_DECODER, SCHEDULE_GRAPH_LIMIT)
    schedule_id = await components.timeouts.writing(
        components.schedules.create(credential_of(request), body)
    )
    return await _respond(request, schedule_id, 201)


@route(
    "GET",
    SCHEDULES_PATH,
    "List schedules, newest first",
    access=Access.READ,
    response_body=task_shapes.Page[Schedule],
    query=(
        Parameter("user", "The user who created it."),
        Parameter("due_before", "Schedules that fire before this time and are not paused."),
        *PAGE_PARAMETERS,
    ),
    errors=(422,),
)
async def list_schedules(request: Request) -> Response:
    """List schedules, newest first."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before_id()
    due_before = _time_parameter(query, "due_before")
    async with tenant_connection(components_of(request), credential) as conn:
        rows = await schedules.read(
            conn,
            credential.tenant_id,
            user=query.get("user"),
            due_before=due_before,
            before=before,
            limit=limit + 1,
        )
    cursor = encode_cursor(rows[limit - 1].template.id) if len(rows) > limit else None
    return as_json(
        task_shapes.Page([schedule(row, credential.tenant) for row in rows[:limit]], cursor)
    )


@route(
    "POST",
    "/v1/schedules/preview",
    "Preview the fire times of a schedule without storing it",
    access=Access.READ,
    request_body=PreviewRequest,
    response_body=Times,
    errors=(413, 422),
)
async def preview_schedule(request: Request) -> Response:
    """Preview the fire times that a schedule would have. Nothing is stored."""
    credential = credential_of(request)
    query_of(request)
    body = decode(await read_json_body(request), PREVIEW_DECODER, SCHEDULE_GRAPH_LIMIT)
    check_schedule_name(body.name)
    parse_misfire(body.misfire)
    overlap = parse_overlap(body.overlap)
    if body.task is not None or body.graph is not None:
        task, graph = schedule_template(body.task, body.graph)
        await templates.check(task, graph, credential.plan, overlap)
    count = DEFAULT_TIMES if body.count is None else body.count
    if not 1 <= count <= MAX_TIMES:
        raise Invalid("count", f"{count} is not a whole number from 1 to {MAX_TIMES}.")
    async with tenant_connection(components_of(request), credential) as conn:
        now = await database.now(conn)
    recurrence = parse_recurrence(body, now=now)
    after = now if body.after is None else parse_time(body.after, "after")
    first_fire_time(recurrence, min(now, after))
    return as_json(_next_times(recurrence, after, count))


@route(
    "GET",
    SCHEDULE_PATH,
    "Get a schedule",
    access=Access.READ,
    response_body=Schedule,
    errors=(404, 409),
)
async def get_schedule(request: Request) -> Response:
    """Get a schedule by its id or its name."""
    query_of(request)
    return await _respond(request, await schedule_id_of(request))


@route(
    "PATCH",
    SCHEDULE_PATH,
    "Update a schedule",
    access=Access.SUBMIT,
    request_body=ScheduleChange,
    response_body=Schedule,
    errors=(404, 409, 413, 422),
)
async def update_schedule(request: Request) -> Response:
    """Update a schedule, including its `next_run_at`.

    Given fields are replaced; null restores the default.
    """
    schedule_id = await schedule_id_of(request)
    query_of(request)
    body = await read_json_body(request)
    given = decode(body, CHANGE_DECODER, SCHEDULE_GRAPH_LIMIT)
    # Decoded again, because an update must tell null from an absent field.
    changes: dict[str, Any] = decode(body, FIELDS_DECODER, SCHEDULE_GRAPH_LIMIT)
    changes.update({name: getattr(given, name) for name in ("task", "graph") if name in changes})
    components = components_of(request)
    return await _apply_change(
        request,
        schedule_id,
        components.schedules.update(credential_of(request), schedule_id, changes),
    )


@route(
    "DELETE",
    SCHEDULE_PATH,
    "Remove a schedule",
    access=Access.SUBMIT,
    statuses=(204,),
    errors=(404, 409),
)
async def remove_schedule(request: Request) -> Response:
    """Remove a schedule. Tasks that it has submitted are not affected."""
    components, schedule_id = components_of(request), await schedule_id_of(request)
    query_of(request)
    await components.timeouts.writing(
        components.schedules.remove(credential_of(request), schedule_id)
    )
    return no_content()


@route(
    "POST",
    f"{SCHEDULE_PATH}/pause",
    "Pause a schedule",
    access=Access.SUBMIT,
    response_body=Schedule,
    errors=(404, 409),
)
async def pause_schedule(request: Request) -> Response:
    """Pause a schedule: it does not fire until it is resumed."""
    schedule_id = await schedule_id_of(request)
    query_of(request)
    pausing = components_of(request).schedules.pause(credential_of(request), schedule_id)
    return await _apply_change(request, schedule_id, pausing)


@route(
    "POST",
    f"{SCHEDULE_PATH}/resume",
    "Resume a schedule",
    access=Access.SUBMIT,
    response_body=Schedule,
    errors=(404, 409),
)
async def resume_schedule(request: Request) -> Response:
    """Resume a paused schedule, from its next fire time on."""
    schedule_id = await schedule_id_of(request)
    query_of(request)
    resuming = components_of(request).schedules.resume(credential_of(request), schedule_id)
    return await _apply_change(request, schedule_id, resuming)


@route(
    "POST",
    f"{SCHEDULE_PATH}/run",
    "Run a schedule now",
    access=Access.SUBMIT,
    response_body=(task_shapes.Task, GraphIds),
    statuses=(201,),
    errors=(404, 409, 422, 429),
)
async def run_schedule(request: Request) -> Response:
    """Run a schedule now, in addition to its fire times.

    The response is the submitted task, or the ids of the submitted graph.
    """
    components, credential = components_of(request), credential_of(request)
    schedule_id = await schedule_id_of(request)
    query_of(request)
    made = await components.timeouts.writing(components.schedules.run(credential, schedule_id))
    if made.graph is None:
        response = await task_response(components, credential, made.id, 201)
    else:
        tasks = zip(made.spec.task_specs, made.ids, strict=True)
        ids = {spec.ref or "": str(task_id) for spec, task_id in tasks}
        response = as_json(GraphIds(str(made.id), ids), 201)
    return with_rate_headers(response, components, credential)


@route(
    "POST",
    f"{SCHEDULE_PATH}/backfill",
    "Backfill past fire times",
    access=Access.SUBMIT,
    request_body=BackfillRequest,
    response_body=task_shapes.Ids,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def backfill_schedule(request: Request) -> Response:
    """Submit a task or graph for every past fire time in a range that has none, all or nothing."""
    components, credential = components_of(request), credential_of(request)
    schedule_id = await schedule_id_of(request)
    query_of(request)
    body = decode(await read_json_body(request), BACKFILL_DECODER)
    backfill = components.schedules.backfill(
        credential,
        schedule_id,
        parse_time(body.start_at, "start_at"),
        parse_time(body.end_at, "end_at"),
    )
    ids = await components.timeouts.writing(backfill)
    response = as_json(task_shapes.Ids([str(submitted) for submitted in ids]), 201)
    return with_rate_headers(response, components, credential)


@route(
    "GET",
    f"{SCHEDULE_PATH}/next",
    "List the next fire times of a schedule",
    access=Access.READ,
    response_body=Times,
    query=(
        Parameter(
            "count", "The number of fire times; 10 by default.", int, minimum=1, maximum=MAX_TIMES
        ),
        Parameter("after", "Fire times after this time; by default from the next run on."),
    ),
    errors=(404, 409, 422),
)
async def next_times(request: Request) -> Response:
    """List the next fire times of a schedule, whether it is paused or not."""
    schedule_id, query = await schedule_id_of(request), query_of(request)
    count = query.integer("count", 1, MAX_TIMES) or DEFAULT_TIMES
    after = _time_parameter(query, "after")
    async with tenant_connection(components_of(request), credential_of(request)) as conn:
        stored = await find_schedule(request, conn, schedule_id)
    if after is not None:
        return as_json(_next_times(stored.template.recurrence, after, count))
    if stored.next_run_at is None:
        return as_json(Times([]))
    rest = _next_times(stored.template.recurrence, stored.next_run_at, count - 1)
    return as_json(Times([stored.next_run_at, *rest.times]))


async def find_schedule(request: Request, conn: Connection, schedule_id: int) -> StoredSchedule:
    """Return a schedule of the caller's tenant; raises NotFound."""
    tenant_id = credential_of(request).tenant_id
    rows = await schedules.read(conn, tenant_id, schedule_id=schedule_id)
    if not rows:
        raise not_found("schedule", schedule_id)
    return rows[0]


async def _apply_change(
    request: Request, schedule_id: int, change: Coroutine[Any, Any, None]
) -> Response:
    await components_of(request).timeouts.writing(change)
    return await _respond(request, schedule_id)


async def _respond(request: Request, schedule_id: int, status: int = 200) -> Response:
    credential = credential_of(request)
    async with tenant_connection(components_of(request), credential) as conn:
        stored = await find_schedule(request, conn, schedule_id)
    return as_json(schedule(stored, credential.tenant), status)


def _time_parameter(query: Query, name: str) -> datetime | None:
    text = query.get(name)
    return None if text is None else parse_time(text.replace(" ", "+"), name)


def _next_times(recurrence: Recurrence, after: datetime, count: int) -> Times:
    return Times(list(islice(fire_times(recurrence, after), count)))


HANDLERS = [
    create_schedule,
    list_schedules,
    preview_schedule,
    get_schedule,
    update_schedule,
    remove_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule,
    backfill_schedule,
    next_times,
]
