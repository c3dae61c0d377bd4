"""Schedules: what is submitted again and again, and when."""

from collections.abc import Coroutine
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api import shapes
from duly.api.auth import Access
from duly.api.body import decode, read_json
from duly.api.graphs import GraphIds
from duly.api.query import Query, query_of, write_cursor
from duly.api.rate_headers import with_rate
from duly.api.reading import id_of, not_found, reading
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.api.schedule_shapes import Schedule, Times, schedule
from duly.api.tasks import FIELDS, PAGE, answer_task
from duly.api.value_limit import GRAPH_OF_A_SCHEDULE
from duly.duration import parse_time
from duly.errors import Invalid
from duly.model.graph_request import GraphRequest
from duly.model.recurrence import Recurrence
from duly.model.recurrence_request import RecurrenceRequest, read_recurrence
from duly.model.request import TaskRequest
from duly.model.schedule_request import (
    ScheduleChange,
    ScheduleRequest,
    misfire_of,
    name_of,
    overlap_of,
    submitted_of,
)
from duly.policy.recurrence import fire_times
from duly.server import templates
from duly.server.schedule_changes import first_after
from duly.store import database, schedules
from duly.store.database import Connection
from duly.store.schedules import StoredSchedule

ALL = "/v1/schedules"
ONE = "/v1/schedules/{id}"
COUNT = 10
MOST = 1000


class PreviewRequest(RecurrenceRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/schedules/preview: a schedule; what it submits may be left out."""

    name: str | None = None
    task: TaskRequest | None = None
    graph: GraphRequest | None = None
    misfire: str | None = None
    overlap: str | None = None
    count: int | None = None
    after: str | None = None


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/schedules/{id}/backfill: from when to when, both included."""

    start_at: str
    end_at: str


SCHEDULE = msgspec.json.Decoder(ScheduleRequest)
CHANGE = msgspec.json.Decoder(ScheduleChange)
PREVIEW = msgspec.json.Decoder(PreviewRequest)
BACKFILL = msgspec.json.Decoder(BackfillRequest)


@route(
    "POST",
    ALL,
    "Create a schedule",
    access=Access.SUBMIT,
    takes=ScheduleRequest,
    gives=Schedule,
    statuses=(201,),
    errors=(404, 413, 422, 429),
)
async def create_schedule(request: Request) -> Response:
    """Store a schedule; it is told when it fires first."""
    parts = parts_of(request)
    query_of(request)
    asked = decode(await _body(request), SCHEDULE, GRAPH_OF_A_SCHEDULE)
    made = await parts.timeouts.writing(parts.schedules.create(credential_of(request), asked))
    return await _answer(request, made, 201)


@route(
    "GET",
    ALL,
    "List schedules, newest first",
    access=Access.READ,
    gives=shapes.Page[Schedule],
    query=(
        Parameter("user", "Who created it."),
        Parameter("due_before", "Those that fire before this time and are not paused."),
        *PAGE,
    ),
    errors=(422,),
)
async def list_schedules(request: Request) -> Response:
    """Return a page of schedules."""
    credential, query = credential_of(request), query_of(request)
    limit, before = query.limit(), query.before()
    due_before = _time(query, "due_before")
    async with reading(parts_of(request), credential) as conn:
        found = await schedules.read(
            conn,
            credential.tenant_id,
            user=query.one("user"),
            due_before=due_before,
            before=before,
            limit=limit + 1,
        )
    cursor = write_cursor(found[limit - 1].template.id) if len(found) > limit else None
    return as_json(shapes.Page([schedule(one, credential.tenant) for one in found[:limit]], cursor))


@route(
    "POST",
    "/v1/schedules/preview",
    "Say when a schedule would fire, and store nothing",
    access=Access.READ,
    takes=PreviewRequest,
    gives=Times,
    errors=(413, 422),
)
async def preview_schedule(request: Request) -> Response:
    """Return the fire times that a schedule would have."""
    credential = credential_of(request)
    query_of(request)
    asked = decode(await _body(request), PREVIEW, GRAPH_OF_A_SCHEDULE)
    name_of(asked.name)
    misfire_of(asked.misfire)
    overlap = overlap_of(asked.overlap)
    if asked.task is not None or asked.graph is not None:
        task, graph = submitted_of(asked.task, asked.graph)
        await templates.check(task, graph, credential.plan, overlap)
    count = COUNT if asked.count is None else asked.count
    if not 1 <= count <= MOST:
        raise Invalid("count", f"count is a whole number from 1 to {MOST}, not {count}.")
    async with reading(parts_of(request), credential) as conn:
        at = await database.now(conn)
    recurrence = read_recurrence(asked, now=at)
    after = at if asked.after is None else parse_time(asked.after, "after")
    first_after(recurrence, min(at, after))
    return as_json(_times(recurrence, after, count))


@route("GET", ONE, "Look at a schedule", access=Access.READ, gives=Schedule, errors=(404,))
async def get_schedule(request: Request) -> Response:
    """Return a schedule."""
    query_of(request)
    return await _answer(request, id_of(request, "schedule"))


@route(
    "PATCH",
    ONE,
    "Change a schedule",
    access=Access.SUBMIT,
    takes=ScheduleChange,
    gives=Schedule,
    errors=(404, 413, 422),
)
async def update_schedule(request: Request) -> Response:
    """Replace the given fields; null brings a default back. `next_run_at` may be one of them."""
    schedule_id = id_of(request, "schedule")
    query_of(request)
    body = await _body(request)
    decode(body, CHANGE, GRAPH_OF_A_SCHEDULE)
    # Decoded once more, because null and left out are not the same in a change.
    changes: dict[str, Any] = decode(body, FIELDS, GRAPH_OF_A_SCHEDULE)
    parts = parts_of(request)
    return await _changed(
        request, schedule_id, parts.schedules.update(credential_of(request), schedule_id, changes)
    )


@route("DELETE", ONE, "Remove a schedule", access=Access.SUBMIT, statuses=(204,), errors=(404,))
async def remove_schedule(request: Request) -> Response:
    """Remove a schedule; what it has submitted goes on."""
    parts, schedule_id = parts_of(request), id_of(request, "schedule")
    query_of(request)
    await parts.timeouts.writing(parts.schedules.remove(credential_of(request), schedule_id))
    return no_content()


@route(
    "POST", f"{ONE}/pause", "Pause a schedule", access=Access.SUBMIT, gives=Schedule, errors=(404,)
)
async def pause_schedule(request: Request) -> Response:
    """Let a schedule not fire until it is resumed."""
    schedule_id = id_of(request, "schedule")
    query_of(request)
    pausing = parts_of(request).schedules.pause(credential_of(request), schedule_id)
    return await _changed(request, schedule_id, pausing)


@route(
    "POST",
    f"{ONE}/resume",
    "Resume a schedule",
    access=Access.SUBMIT,
    gives=Schedule,
    errors=(404,),
)
async def resume_schedule(request: Request) -> Response:
    """Let a paused schedule fire again, from its next fire time on."""
    schedule_id = id_of(request, "schedule")
    query_of(request)
    resuming = parts_of(request).schedules.resume(credential_of(request), schedule_id)
    return await _changed(request, schedule_id, resuming)


@route(
    "POST",
    f"{ONE}/run",
    "Run a schedule now",
    access=Access.SUBMIT,
    gives=(shapes.Task, GraphIds),
    statuses=(201,),
    errors=(404, 409, 422, 429),
)
async def run_schedule(request: Request) -> Response:
    """Submit its task or graph now, beside its fire times; a graph is answered by its ids."""
    parts, credential = parts_of(request), credential_of(request)
    schedule_id = id_of(request, "schedule")
    query_of(request)
    made = await parts.timeouts.writing(parts.schedules.run(credential, schedule_id))
    if made.graph is None:
        answer = await answer_task(parts, credential, made.id, 201)
    else:
        named = zip(made.plot.specs, made.ids, strict=True)
        ids = {spec.ref or "": str(task_id) for spec, task_id in named}
        answer = as_json(GraphIds(str(made.id), ids), 201)
    return with_rate(answer, parts, credential)


@route(
    "POST",
    f"{ONE}/backfill",
    "Make up for fire times of the past",
    access=Access.SUBMIT,
    takes=BackfillRequest,
    gives=shapes.Ids,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def backfill_schedule(request: Request) -> Response:
    """Submit a task or a graph for every fire time in a past range that has none, all or none."""
    parts, credential = parts_of(request), credential_of(request)
    schedule_id = id_of(request, "schedule")
    query_of(request)
    asked = decode(await _body(request), BACKFILL)
    made = parts.schedules.backfill(
        credential,
        schedule_id,
        parse_time(asked.start_at, "start_at"),
        parse_time(asked.end_at, "end_at"),
    )
    ids = await parts.timeouts.writing(made)
    return with_rate(as_json(shapes.Ids([str(one) for one in ids]), 201), parts, credential)


@route(
    "GET",
    f"{ONE}/next",
    "Say when a schedule fires next",
    access=Access.READ,
    gives=Times,
    query=(
        Parameter("count", "How many times, 10 unless told.", int, minimum=1, maximum=MOST),
        Parameter("after", "Those after this time; from the next run on unless told."),
    ),
    errors=(404, 422),
)
async def next_times(request: Request) -> Response:
    """Return the fire times to come, whether it is paused or not."""
    schedule_id, query = id_of(request, "schedule"), query_of(request)
    count = query.integer("count", 1, MOST) or COUNT
    after = _time(query, "after")
    async with reading(parts_of(request), credential_of(request)) as conn:
        found = await find_schedule(request, conn, schedule_id)
    if after is not None:
        return as_json(_times(found.template.recurrence, after, count))
    if found.next_run_at is None:
        return as_json(Times([]))
    rest = _times(found.template.recurrence, found.next_run_at, count - 1)
    return as_json(Times([found.next_run_at, *rest.times]))


async def find_schedule(request: Request, conn: Connection, schedule_id: int) -> StoredSchedule:
    """Return a schedule of the caller's tenant."""
    tenant_id = credential_of(request).tenant_id
    found = await schedules.read(conn, tenant_id, schedule_id=schedule_id)
    if not found:
        raise not_found("schedule", schedule_id)
    return found[0]


async def _changed(
    request: Request, schedule_id: int, change: Coroutine[Any, Any, None]
) -> Response:
    await parts_of(request).timeouts.writing(change)
    return await _answer(request, schedule_id)


async def _answer(request: Request, schedule_id: int, status: int = 200) -> Response:
    credential = credential_of(request)
    async with reading(parts_of(request), credential) as conn:
        found = await find_schedule(request, conn, schedule_id)
    return as_json(schedule(found, credential.tenant), status)


async def _body(request: Request) -> bytes:
    return await read_json(request)


def _time(query: Query, name: str) -> datetime | None:
    text = query.one(name)
    return None if text is None else parse_time(text.replace(" ", "+"), name)


def _times(recurrence: Recurrence, after: datetime, count: int) -> Times:
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
