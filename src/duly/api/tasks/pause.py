"""Routes that pause and resume tasks."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.lookups import id_of, read_task, tenant_connection
from duly.api.requests.query import query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.bulk_actions import TaskFilterRequest, apply_in_batches
from duly.api.tasks.graph_operations import Paused, Resumed
from duly.api.tasks.tasks import TASK_PATHS, task_response
from duly.errors import Conflict
from duly.model.task import FINAL_STATUSES, status_clause


@route(
    "POST",
    [f"{path}/pause" for path in TASK_PATHS],
    "Pause a task",
    access=Access.SUBMIT,
    response_body=task_shapes.Task,
    errors=(404, 409),
)
async def pause(request: Request) -> Response:
    """Pause a task: it does not start until it is resumed. A running attempt continues.

    If that attempt fails, the task is not retried before it is resumed. Pausing a paused task
    changes nothing.
    """
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    paused = await components.timeouts.writing(components.pauser.pause(credential, [task_id]))
    if task_id not in paused:
        await _check_live(request, task_id, "pause")
    return await task_response(components, credential, task_id)


@route(
    "POST",
    [f"{path}/resume" for path in TASK_PATHS],
    "Resume a paused task",
    access=Access.SUBMIT,
    response_body=task_shapes.Task,
    errors=(404, 409),
)
async def resume(request: Request) -> Response:
    """Resume a paused task. The time for which it was paused is added to its start_by.

    Resuming a task that is not paused changes nothing.
    """
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    if not await components.timeouts.writing(components.pauser.resume(credential, [task_id])):
        await _check_live(request, task_id, "resume")
    return await task_response(components, credential, task_id)


async def _check_live(request: Request, task_id: int, verb: str) -> None:
    """Raise Conflict if the task is final or being cancelled."""
    components, credential = components_of(request), credential_of(request)
    async with tenant_connection(components, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
    if view.status in FINAL_STATUSES:
        raise Conflict(
            f"Task {task_id} {status_clause(view.status)}; there is nothing left to {verb}.",
            status=view.status,
        )
    if view.cancel_requested_at is not None:
        raise Conflict(
            f"Task {task_id} is being cancelled; there is nothing left to {verb}.",
            status=view.status,
        )


@route(
    "POST",
    ["/v1/tasks/pause", "/v1/jobs/pause"],
    "Pause all tasks that match a filter",
    access=Access.SUBMIT,
    request_body=TaskFilterRequest,
    response_body=Paused,
    errors=(413, 422),
)
async def pause_many(request: Request) -> Response:
    """Pause all live tasks that match a filter, newest first.

    If `more` is true, tasks are left: repeat the call.
    """
    pauser, credential = components_of(request).pauser, credential_of(request)
    batches, more = await apply_in_batches(
        request, "pause", lambda ids: pauser.pause(credential, ids)
    )
    running = sum(sum(batch.values()) for batch in batches)
    return as_json(Paused(sum(map(len, batches)) - running, running, more))


@route(
    "POST",
    ["/v1/tasks/resume", "/v1/jobs/resume"],
    "Resume all tasks that match a filter",
    access=Access.SUBMIT,
    request_body=TaskFilterRequest,
    response_body=Resumed,
    errors=(413, 422),
)
async def resume_many(request: Request) -> Response:
    """Resume all paused tasks that match a filter, newest first.

    If `more` is true, tasks are left: repeat the call.
    """
    pauser, credential = components_of(request).pauser, credential_of(request)
    batches, more = await apply_in_batches(
        request, "resume", lambda ids: pauser.resume(credential, ids)
    )
    return as_json(Resumed(sum(map(len, batches)), more))


HANDLERS = [pause, resume, pause_many, resume_many]
