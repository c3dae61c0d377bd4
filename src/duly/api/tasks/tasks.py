"""Routes for tasks: submit, list, get, update, explain and result."""

from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import clock
from duly.api.auth import Access, guard
from duly.api.limits.rate_headers import with_rate_headers
from duly.api.requests.batch_decoding import Batch, read_batch
from duly.api.requests.body import claim_memory, decode, read_body, read_json_body
from duly.api.requests.disconnects import while_connected
from duly.api.requests.lookups import (
    id_of,
    not_found,
    read_task,
    read_task_with_reason,
    tenant_connection,
)
from duly.api.requests.query import query_of
from duly.api.requests.tenant_selection import TenantPage
from duly.api.responses import JSON_MEDIA_TYPE, as_json
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.task_pages import read_task_page
from duly.errors import Conflict, Invalid, TaskFailed
from duly.model.requests.task_request import MAX_KEY_CHARS, TaskRequest, complete
from duly.model.requests.texts import check_text
from duly.model.task import FINAL_STATUSES, NOT_RUNNING, Reason, Status, status_clause
from duly.model.tenant import Credential
from duly.model.wording import count_of, uncapitalised
from duly.server.components import Components
from duly.server.offload import collector_paused
from duly.store.tasks import views

TASKS_PATHS = ["/v1/tasks", "/v1/jobs"]
TASK_PATHS = ["/v1/tasks/{id}", "/v1/jobs/{id}"]
MAX_WAIT_SECONDS = 25
BATCH_TIMEOUT_SECONDS = 25.0
"""After this the client of a batch gets an error that says its outcome is unknown."""
POLL_INTERVAL_SECONDS = 0.5
"""A waiting request polls this often in case that it misses a wake-up."""


TASK_DECODER = msgspec.json.Decoder(TaskRequest)
FIELDS_DECODER = msgspec.json.Decoder(dict[str, Any])

PAGE_PARAMETERS = (
    Parameter("limit", "The number of items; 50 by default.", int, minimum=1, maximum=1000),
    Parameter("cursor", "The next_cursor of an earlier response."),
)
FILTER_PARAMETERS = (
    Parameter("status", "Statuses, comma-separated or repeated.", repeatable=True),
    Parameter("name", "The name of the task; a list also finds a ref."),
    Parameter("user", "The user who submitted it."),
    Parameter("label", "A label of the task, as key=value; may be repeated.", repeatable=True),
    Parameter("node", "The name of the node that runs it, or ran it last."),
    Parameter("since", "Submitted since: a time, or a duration before now such as 1h."),
    Parameter(
        "overdue",
        "If true, only tasks that have waited past their delay tolerance; without `status`, only "
        "those that still wait.",
        bool,
    ),
)


PARENT_PARAMETER = Parameter(
    "parent", "The task whose attempts submitted them. No other filter may be given with it."
)


@route(
    "POST",
    TASKS_PATHS,
    "Submit a task",
    access=Access.SUBMIT,
    request_body=TaskRequest,
    accepts_idempotency_key=True,
    response_body=task_shapes.Task,
    statuses=(201, 200),
    errors=(409, 413, 422, 429),
)
async def submit(request: Request) -> Response:
    """Submit a task. 200 means that its idempotency key was used before.

    The response is sent after the commit.
    """
    components, credential = components_of(request), credential_of(request)
    if request.scope["query_string"]:
        query_of(request)
    task = decode(await read_json_body(request), TASK_DECODER)
    key = idempotency_key(request)
    if key is not None:
        if task.idempotency_key not in (None, key):
            raise Invalid(
                "idempotency_key",
                "the header Idempotency-Key has another value. Give only one of them.",
            )
        task.idempotency_key = key
    if task.idempotency_key is None:
        # Before anything else is checked: a refusal must cost next to nothing.
        components.rate_limiter.check(credential)
    spec = complete(task, credential.plan)
    admitted = await components.submitter.submit(credential, spec)
    if admitted.created and admitted.stored is not None:
        server = components.cluster_manager.name
        scheduling = components.settings.scheduling
        run_time = components.run_times.estimate(credential.tenant_id, spec.name)
        body = task_shapes.new_task(
            spec, admitted.stored, credential, server, scheduling, run_time.expected
        )
        response = as_json(body, 201)
    else:
        status = 201 if admitted.created else 200
        response = await task_response(components, credential, admitted.id, status)
    return with_rate_headers(response, components, credential)


@route(
    "POST",
    ["/v1/tasks/batch", "/v1/jobs/batch"],
    "Submit many tasks, all or none",
    access=Access.SUBMIT,
    request_body=Batch,
    accepts_idempotency_key=True,
    response_body=task_shapes.Ids,
    statuses=(201, 200),
    errors=(409, 413, 422, 429),
)
async def submit_batch(request: Request) -> Response:
    """Submit many tasks, all or none. A repeated idempotency key returns the same ids and 200."""
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await read_body(request, components.settings.requests.batch_limit)
    key = idempotency_key(request)
    with collector_paused(len(body)):
        response = await _submit_batch_body(request, body, key)
    return with_rate_headers(response, components, credential)


async def _submit_batch_body(request: Request, body: bytes, key: str | None) -> Response:
    components, credential = components_of(request), credential_of(request)
    claim = partial(claim_memory, request)
    specs = await read_batch(body, credential, components.settings.requests, claim)
    submission = components.submitter.submit_batch(credential, specs, key=key)
    batch = await components.timeouts.writing(submission, BATCH_TIMEOUT_SECONDS)
    ids = task_shapes.Ids([str(task_id) for task_id in batch.ids])
    return as_json(ids, 201 if batch.created else 200)


def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key header, if any; raises Invalid if there are different ones."""
    values = {value for name, value in request.scope["headers"] if name == b"idempotency-key"}
    if not values:
        return None
    if len(values) > 1:
        raise Invalid(
            "idempotency_key", "the header Idempotency-Key is given more than once. Give it once."
        )
    try:
        key = check_text(values.pop().decode().strip(), "idempotency_key")
    except UnicodeDecodeError:
        raise Invalid("idempotency_key", "the header Idempotency-Key is not valid UTF-8.") from None
    if not 1 <= len(key) <= MAX_KEY_CHARS:
        raise Invalid(
            "idempotency_key",
            f"it has {count_of(len(key), 'character')}. Use 1 to {MAX_KEY_CHARS}.",
        )
    return key


@route(
    "GET",
    TASKS_PATHS,
    "List tasks, newest first",
    access=Access.READ,
    response_body=TenantPage[task_shapes.Task],
    query=(*FILTER_PARAMETERS, PARENT_PARAMETER, *PAGE_PARAMETERS),
    errors=(422,),
)
async def list_tasks(request: Request) -> Response:
    """List tasks, newest first: those of all tenants for administrators, unless they name one.

    Each that has not started has its reason.

    A large payload is only included when a single task is read.
    """
    components, credential = components_of(request), credential_of(request)
    return as_json(await read_task_page(components, credential, query_of(request)))


@route(
    "GET",
    TASK_PATHS,
    "Get a task",
    access=Access.READ,
    response_body=task_shapes.Task,
    query=(
        Parameter(
            "wait",
            "Seconds to wait for the task to end before responding.",
            float,
            minimum=0,
            maximum=MAX_WAIT_SECONDS,
        ),
    ),
    errors=(404, 422),
)
async def get_task(request: Request) -> Response:
    """Get a task. With `wait`, respond once it has ended or after that many seconds."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    seconds = _wait_seconds(query_of(request).get("wait"))
    if seconds:
        with components.waits.acquired(credential.tenant_id):
            await while_connected(request, _until_final(request, task_id, seconds))
    return await task_response(components, credential, task_id)


def _wait_seconds(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise Invalid("wait", f"give a number of seconds from 0 to {MAX_WAIT_SECONDS}.")
    return seconds


async def _until_final(request: Request, task_id: int, seconds: float) -> None:
    """Return once the task is final, or after `seconds`."""
    components, credential = components_of(request), credential_of(request)
    deadline = clock.monotonic() + seconds
    with components.wakeups.listen(task_id) as wakeups:
        while True:
            async with tenant_connection(components, credential) as conn:
                if not await views.is_live(conn, credential.tenant_id, task_id):
                    return
            left = deadline - clock.monotonic()
            if left <= 0 or components.wakeups.is_closed:
                return
            await wakeups.wait(
                min(components.wakeups.recheck_interval(POLL_INTERVAL_SECONDS), left)
            )
            await guard(request)


async def task_response(
    components: Components, credential: Credential, task_id: int, status: int = 200
) -> Response:
    """Return a response with the current state of a task."""
    view, reason = await read_task_with_reason(components, credential, task_id)
    body = task_shapes.task(view, credential.tenant, components.settings.scheduling, reason)
    return as_json(body, status)


@route(
    "PATCH",
    TASK_PATHS,
    "Update a task that has not started",
    access=Access.SUBMIT,
    request_body=TaskRequest,
    response_body=task_shapes.Task,
    errors=(404, 409, 413, 422),
)
async def update_task(request: Request) -> Response:
    """Update a task that has not started. Given fields are replaced; null restores the default."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    body = await read_json_body(request)
    given = decode(body, TASK_DECODER)
    # Decoded again, because an update must tell null from an absent field.
    changes = decode(body, FIELDS_DECODER)
    if given.call is not None:
        changes["call"] = given.call
    async with tenant_connection(components, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
    if view.status not in NOT_RUNNING:
        raise Conflict(
            f"Task {task_id} {status_clause(view.status)}; only a task that has not started can be "
            "changed.",
            status=view.status,
        )
    await components.timeouts.writing(components.updater.update(credential, task_id, changes))
    return await task_response(components, credential, task_id)


@route(
    "GET",
    [f"{path}/why" for path in TASK_PATHS],
    "Explain the status of a task",
    access=Access.READ,
    response_body=Reason,
    errors=(404,),
)
async def explain_task(request: Request) -> Response:
    """Explain why a task has its status: always exactly one reason."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    _, reason = await read_task_with_reason(components, credential, task_id, always_explain=True)
    return as_json(reason)


@route(
    "GET",
    [f"{path}/result" for path in TASK_PATHS],
    "Get the result of a task",
    access=Access.READ,
    response_body=object,
    errors=(404, 409),
)
async def get_result(request: Request) -> Response:
    """Get the result of a task that is done: the JSON that it wrote, or null."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    async with tenant_connection(components, credential) as conn:
        view = await views.read_result(conn, credential.tenant_id, task_id)
    if view is None:
        raise not_found("task", task_id)
    if view.status not in FINAL_STATUSES:
        raise Conflict(
            f"Task {task_id} {status_clause(view.status)}; it has no result until it has ended.",
            status=view.status,
        )
    if view.status is not Status.DONE:
        why = f": {uncapitalised(view.reason.message)}" if view.reason else "."
        message = f"Task {task_id} {status_clause(view.status)} and has no result{why}"
        raise TaskFailed(message, status=view.status)
    return Response(view.result or "null", media_type=JSON_MEDIA_TYPE)


HANDLERS = [
    submit,
    submit_batch,
    list_tasks,
    get_task,
    update_task,
    explain_task,
    get_result,
]
