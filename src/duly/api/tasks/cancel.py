"""Routes that cancel and replay tasks."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.limits.rate_headers import with_rate_headers
from duly.api.requests.body import decode, read_json_body
from duly.api.requests.lookups import id_of, read_task, tenant_connection
from duly.api.requests.query import query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.bulk_actions import TaskFilterRequest, apply_in_batches
from duly.api.tasks.tasks import BATCH_TIMEOUT_SECONDS, TASK_PATHS, task_response
from duly.errors import Conflict
from duly.model.task import FINAL_STATUSES, Status, status_clause


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The optional body of a replay."""

    downstream: bool = False


REPLAY_DECODER = msgspec.json.Decoder(ReplayRequest)


@route(
    "POST",
    [f"{path}/cancel" for path in TASK_PATHS],
    "Cancel a task",
    access=Access.SUBMIT,
    response_body=task_shapes.Task,
    errors=(404, 409),
)
async def cancel(request: Request) -> Response:
    """Cancel a task.

    A waiting task never starts. A running one is stopped, and stays `running` until its processes
    have ended.
    """
    return await _cancel(request)


@route(
    "DELETE",
    TASK_PATHS,
    "Cancel a task",
    access=Access.SUBMIT,
    response_body=task_shapes.Task,
    errors=(404, 409),
)
async def delete(request: Request) -> Response:
    """Cancel a task; the same as POST …/cancel."""
    return await _cancel(request)


async def _cancel(request: Request) -> Response:
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    cancelled = await components.timeouts.writing(
        components.canceller.cancel(credential, [task_id])
    )
    if task_id not in cancelled:
        async with tenant_connection(components, credential) as conn:
            view = await read_task(conn, credential.tenant_id, task_id)
        if view.status is not Status.CANCELLED:
            raise Conflict(
                f"Task {task_id} {status_clause(view.status)}; there is nothing left to cancel.",
                status=view.status,
            )
    return await task_response(components, credential, task_id)


@route(
    "POST",
    ["/v1/tasks/cancel", "/v1/jobs/cancel"],
    "Cancel all tasks that match a filter",
    access=Access.SUBMIT,
    request_body=TaskFilterRequest,
    response_body=task_shapes.Cancelled,
    errors=(413, 422),
)
async def cancel_many(request: Request) -> Response:
    """Cancel all live tasks that match a filter, newest first.

    If `more` is true, tasks are left: repeat the call.
    """
    canceller, credential = components_of(request).canceller, credential_of(request)
    batches, more = await apply_in_batches(
        request, "cancel", lambda ids: canceller.cancel(credential, ids)
    )
    return as_json(task_shapes.Cancelled(sum(map(len, batches)), more=more))


@route(
    "POST",
    [f"{path}/replay" for path in TASK_PATHS],
    "Replay a finished task",
    access=Access.SUBMIT,
    request_body=ReplayRequest,
    response_body=task_shapes.Task,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def replay(request: Request) -> Response:
    """Submit a copy of a finished task, linked to it by `replay_of`.

    With `downstream`, the downstream tasks that its outcome cancelled are replayed with it.
    """
    return await replay_task(request, dead=False)


async def replay_task(request: Request, *, dead: bool) -> Response:
    """Replay the task in the path; with `dead` it must be a dead letter."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "dead letter" if dead else "task")
    query_of(request)
    body = await read_json_body(request)
    downstream = bool(body) and decode(body, REPLAY_DECODER).downstream
    async with tenant_connection(components, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
    if view.status not in FINAL_STATUSES:
        raise Conflict(
            f"Task {task_id} {status_clause(view.status)}; only a task that has ended can be "
            "replayed.",
            status=view.status,
        )
    replayer = components.downstream if downstream else components.replayer
    timeout = BATCH_TIMEOUT_SECONDS if downstream else None
    replaying = replayer.replay(credential, task_id, dead=dead)
    new_id = await components.timeouts.writing(replaying, timeout)
    return with_rate_headers(
        await task_response(components, credential, new_id, 201), components, credential
    )


HANDLERS = [cancel, delete, cancel_many, replay]
