"""Tasks: submit, list, look, change."""

from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import clock
from duly.api import shapes
from duly.api.auth import Access, guard
from duly.api.body import claim_memory, decode, read_body, read_json
from duly.api.connected import while_connected
from duly.api.many_tasks import Batch, read_batch
from duly.api.query import query_of, task_filter, write_cursor
from duly.api.rate_headers import with_rate
from duly.api.reading import explained, id_of, not_found, picking, read_task, reading
from duly.api.responses import JSON, as_json
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.errors import Conflict, Invalid
from duly.model.request import MAX_KEY, TaskRequest, check_text, complete
from duly.model.task import FINAL, NOT_STARTED, Reason
from duly.model.tenant import Credential
from duly.server.offload import collector_paused
from duly.server.parts import Parts
from duly.store import views

ALL = ["/v1/tasks", "/v1/jobs"]
ONE = ["/v1/tasks/{id}", "/v1/jobs/{id}"]
LONGEST_WAIT = 25
BATCH_PATIENCE = 25.0
"""Seconds after which the client of a batch is told that its outcome is not known."""
LOOK_AGAIN = 0.5
"""Seconds after which whoever waits looks by itself, in case that nobody rang."""


TASK = msgspec.json.Decoder(TaskRequest)
FIELDS = msgspec.json.Decoder(dict[str, Any])

PAGE = (
    Parameter("limit", "How many items, 50 unless told.", int, minimum=1, maximum=1000),
    Parameter("cursor", "The next_cursor of an earlier answer."),
)
FILTER = (
    Parameter("status", "One or several statuses, with commas or repeated.", several=True),
    Parameter("name", "The name of the task."),
    Parameter("user", "Who submitted it."),
    Parameter("label", "A label that it has, as key=value; repeat it for more.", several=True),
    Parameter("node", "The name of the node that runs it, or ran it last."),
    Parameter("since", "Submitted since: a time, or a duration such as 1h."),
)


@route(
    "POST",
    ALL,
    "Submit a task",
    access=Access.SUBMIT,
    takes=TaskRequest,
    takes_key=True,
    gives=shapes.Task,
    statuses=(201, 200),
    errors=(409, 413, 422, 429),
)
async def submit(request: Request) -> Response:
    """Store a task and answer after the commit; 200 when its idempotency key was seen before."""
    parts, credential = parts_of(request), credential_of(request)
    if request.scope["query_string"]:
        query_of(request)
    asked = decode(await read_json(request), TASK)
    key = idempotency_key(request)
    if key is not None:
        if asked.idempotency_key not in (None, key):
            raise Invalid(
                "idempotency_key",
                "The header Idempotency-Key and the field idempotency_key differ; give one.",
            )
        asked.idempotency_key = key
    if asked.idempotency_key is None:
        # Before anything else is looked at: to refuse must cost next to nothing.
        parts.rate_limiter.check(credential)
    spec = complete(asked, credential.plan)
    admitted = await parts.submitter.submit(credential, spec)
    if admitted.created and admitted.stored is not None:
        server = parts.cluster_manager.name
        scheduling = parts.settings.scheduling
        told = shapes.fresh_task(spec, admitted.stored, credential, server, scheduling)
        answer = as_json(told, 201)
    else:
        status = 201 if admitted.created else 200
        answer = await answer_task(parts, credential, admitted.id, status)
    return with_rate(answer, parts, credential)


@route(
    "POST",
    ["/v1/tasks/batch", "/v1/jobs/batch"],
    "Submit many tasks, all or none",
    access=Access.SUBMIT,
    takes=Batch,
    takes_key=True,
    gives=shapes.Ids,
    statuses=(201,),
    errors=(409, 413, 422, 429),
)
async def submit_batch(request: Request) -> Response:
    """Store all of the tasks or none; a key that was seen before gives the same ids."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    body = await read_body(request, parts.settings.requests.batch_limit)
    key = idempotency_key(request)
    with collector_paused(len(body)):
        answer = await _store_batch(request, body, key)
    return with_rate(answer, parts, credential)


async def _store_batch(request: Request, body: bytes, key: str | None) -> Response:
    parts, credential = parts_of(request), credential_of(request)
    claim = partial(claim_memory, request)
    specs = await read_batch(body, credential, parts.settings.requests, claim)
    storing = parts.submitter.submit_batch(credential, specs, key=key)
    ids = await parts.timeouts.writing(storing, BATCH_PATIENCE)
    return as_json(shapes.Ids([str(task_id) for task_id in ids]), 201)


def idempotency_key(request: Request) -> str | None:
    """Return the key in the header, if there is one; several must agree."""
    given = {v for name, v in request.scope["headers"] if name == b"idempotency-key"}
    if not given:
        return None
    if len(given) > 1:
        raise Invalid("idempotency_key", "There are several Idempotency-Key headers; give one.")
    try:
        key = check_text(given.pop().decode().strip(), "idempotency_key")
    except UnicodeDecodeError:
        raise Invalid("idempotency_key", "Idempotency-Key is not valid UTF-8.") from None
    if not 1 <= len(key) <= MAX_KEY:
        raise Invalid("idempotency_key", f"Idempotency-Key has 1 to {MAX_KEY} characters.")
    return key


@route(
    "GET",
    ALL,
    "List tasks, newest first",
    access=Access.READ,
    gives=shapes.Page[shapes.Task],
    query=FILTER + PAGE,
    errors=(422,),
)
async def list_tasks(request: Request) -> Response:
    """Return a page of tasks; what a large one runs is only told by itself."""
    parts, credential = parts_of(request), credential_of(request)
    query = query_of(request)
    limit, before = query.limit(), query.before()
    by_status = bool(query.several("status") or query.one("node"))
    async with picking(parts, credential, by_status=by_status) as conn:
        which = await task_filter(conn, query)
        ids = await views.pick(conn, credential.tenant_id, which, before=before, limit=limit + 1)
    page = ids[:limit]
    async with reading(parts, credential) as conn:
        found = await views.read_many(conn, credential.tenant_id, page, which.statuses)
    cursor = write_cursor(page[-1]) if len(ids) > limit else None
    scheduling = parts.settings.scheduling
    items = [shapes.task(view, credential.tenant, scheduling) for view in found]
    return as_json(shapes.Page(items, cursor))


@route(
    "GET",
    ONE,
    "Look at a task",
    access=Access.READ,
    gives=shapes.Task,
    query=(
        Parameter(
            "wait",
            "Seconds to hold the answer back until the task has ended.",
            float,
            minimum=0,
            maximum=LONGEST_WAIT,
        ),
    ),
    errors=(404, 422),
)
async def get_task(request: Request) -> Response:
    """Return a task, with `wait` as soon as it has ended or after that many seconds."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    seconds = _wait(query_of(request).one("wait"))
    if seconds:
        with parts.waits.inside(credential.tenant_id):
            await while_connected(request, _until_final(request, task_id, seconds))
    return await answer_task(parts, credential, task_id)


def _wait(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {LONGEST_WAIT}.")
    return seconds


async def _until_final(request: Request, task_id: int, seconds: float) -> None:
    """Return once the task is not live, or after `seconds`."""
    parts, credential = parts_of(request), credential_of(request)
    until = clock.monotonic() + seconds
    with parts.bell.listen(task_id) as bell:
        while True:
            async with reading(parts, credential) as conn:
                if not await views.is_live(conn, credential.tenant_id, task_id):
                    return
            left = until - clock.monotonic()
            if left <= 0:
                return
            await bell.wait(min(parts.bell.patience(LOOK_AGAIN), left))
            await guard(request)


async def answer_task(
    parts: Parts, credential: Credential, task_id: int, status: int = 200
) -> Response:
    """Return a task as it is now."""
    view, reason = await explained(parts, credential, task_id)
    told = shapes.task(view, credential.tenant, parts.settings.scheduling, reason)
    return as_json(told, status)


@route(
    "PATCH",
    ONE,
    "Change a task that has not started",
    access=Access.SUBMIT,
    takes=TaskRequest,
    gives=shapes.Task,
    errors=(404, 409, 413, 422),
)
async def update_task(request: Request) -> Response:
    """Replace the given fields; null brings a default back."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    body = await read_json(request)
    decode(body, TASK)
    # Decoded once more, because null and left out are not the same in a change.
    changes = decode(body, FIELDS)
    async with reading(parts, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
    if view.status not in NOT_STARTED:
        raise Conflict(
            f"The task is {view.status}; only one that has not started can be changed.",
            status=view.status,
        )
    await parts.timeouts.writing(parts.updater.update(credential, task_id, changes))
    return await answer_task(parts, credential, task_id)


@route(
    "GET",
    [f"{path}/why" for path in ONE],
    "Say why a task is where it is",
    access=Access.READ,
    gives=Reason,
    errors=(404,),
)
async def explain_task(request: Request) -> Response:
    """Return exactly one reason."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    _, reason = await explained(parts, credential, task_id, always=True)
    return as_json(reason)


@route(
    "GET",
    [f"{path}/attempts" for path in ONE],
    "List the attempts at a task",
    access=Access.READ,
    gives=shapes.Attempts,
    errors=(404,),
)
async def list_attempts(request: Request) -> Response:
    """Return every attempt in order, the running one last."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    async with reading(parts, credential) as conn:
        found = await views.read_attempts(conn, credential.tenant_id, task_id)
        if not found:
            await read_task(conn, credential.tenant_id, task_id)
    return as_json(shapes.Attempts([shapes.attempt(view) for view in found]))


@route(
    "GET",
    [f"{path}/result" for path in ONE],
    "Read what a task left as its result",
    access=Access.READ,
    gives=object,
    errors=(404, 409),
)
async def get_result(request: Request) -> Response:
    """Return the JSON as the task wrote it; null when it wrote none."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    async with reading(parts, credential) as conn:
        found = await views.read_result(conn, credential.tenant_id, task_id)
    if found is None:
        raise not_found("task", task_id)
    if found.status not in FINAL:
        raise Conflict(
            f"The task is {found.status}; it has no result before it has ended.",
            status=found.status,
        )
    return Response(found.result or "null", media_type=JSON)


HANDLERS = [
    submit,
    submit_batch,
    list_tasks,
    get_task,
    update_task,
    explain_task,
    list_attempts,
    get_result,
]
