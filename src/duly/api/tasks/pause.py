"""Pausing tasks, and letting them go on."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api import shapes
from duly.api.auth import Access
from duly.api.by_filter import WhichTasks, in_batches
from duly.api.graph_wishes import Paused, Resumed
from duly.api.query import query_of
from duly.api.reading import id_of, read_task, reading
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.api.tasks import ONE, answer_task
from duly.errors import Conflict
from duly.model.task import FINAL


@route(
    "POST",
    [f"{path}/pause" for path in ONE],
    "Pause a task",
    access=Access.SUBMIT,
    gives=shapes.Task,
    errors=(404, 409),
)
async def pause(request: Request) -> Response:
    """Let a task not start until it is resumed; one that runs goes on to the end of its attempt.

    One that runs and fails is not tried again before it is resumed. To pause one that is
    paused changes nothing.
    """
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    paused = await parts.timeouts.writing(parts.pauser.pause(credential, [task_id]))
    if task_id not in paused:
        await _check(request, task_id, "pause")
    return await answer_task(parts, credential, task_id)


@route(
    "POST",
    [f"{path}/resume" for path in ONE],
    "Resume a task that is paused",
    access=Access.SUBMIT,
    gives=shapes.Task,
    errors=(404, 409),
)
async def resume(request: Request) -> Response:
    """Let a paused task go on; the time for which it was paused is added to its start_by.

    To resume one that is not paused changes nothing.
    """
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    if not await parts.timeouts.writing(parts.pauser.resume(credential, [task_id])):
        await _check(request, task_id, "resume")
    return await answer_task(parts, credential, task_id)


async def _check(request: Request, task_id: int, verb: str) -> None:
    """Refuse to pause or resume what will never go on."""
    parts, credential = parts_of(request), credential_of(request)
    async with reading(parts, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
    if view.status in FINAL:
        raise Conflict(
            f"The task is {view.status}; there is nothing left to {verb}.", status=view.status
        )
    if view.cancel_requested_at is not None:
        raise Conflict("The task is being cancelled.", status=view.status)


@route(
    "POST",
    ["/v1/tasks/pause", "/v1/jobs/pause"],
    "Pause all tasks that match a filter",
    access=Access.SUBMIT,
    takes=WhichTasks,
    gives=Paused,
    errors=(413, 422),
)
async def pause_many(request: Request) -> Response:
    """Pause the live tasks that are meant, in batches, newest first."""
    pauser, credential = parts_of(request).pauser, credential_of(request)
    found, more = await in_batches(request, "paused", lambda ids: pauser.pause(credential, ids))
    running = sum(sum(one.values()) for one in found)
    return as_json(Paused(sum(map(len, found)) - running, running, more))


@route(
    "POST",
    ["/v1/tasks/resume", "/v1/jobs/resume"],
    "Resume all tasks that match a filter",
    access=Access.SUBMIT,
    takes=WhichTasks,
    gives=Resumed,
    errors=(413, 422),
)
async def resume_many(request: Request) -> Response:
    """Let the tasks go on that are meant and are paused, in batches, newest first."""
    pauser, credential = parts_of(request).pauser, credential_of(request)
    found, more = await in_batches(request, "resumed", lambda ids: pauser.resume(credential, ids))
    return as_json(Resumed(sum(map(len, found)), more))


HANDLERS = [pause, resume, pause_many, resume_many]
