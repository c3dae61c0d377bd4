"""Cancelling and replaying: how a task's life is cut short, and how it begins again."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api import shapes
from duly.api.auth import Access
from duly.api.body import decode, read_json
from duly.api.by_filter import WhichTasks, in_batches
from duly.api.query import query_of
from duly.api.rate_headers import with_rate
from duly.api.reading import id_of, read_task, reading
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.api.tasks import BATCH_PATIENCE, ONE, answer_task
from duly.errors import Conflict
from duly.model.task import FINAL, Status


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of a replay, which may be left out."""

    downstream: bool = False


REPLAY = msgspec.json.Decoder(ReplayRequest)


@route(
    "POST",
    [f"{path}/cancel" for path in ONE],
    "Cancel a task",
    access=Access.SUBMIT,
    gives=shapes.Task,
    errors=(404, 409),
)
async def cancel(request: Request) -> Response:
    """End a task; one that runs stays `running` until its processes are gone."""
    return await _cancel(request)


@route(
    "DELETE",
    ONE,
    "Cancel a task",
    access=Access.SUBMIT,
    gives=shapes.Task,
    errors=(404, 409),
)
async def delete(request: Request) -> Response:
    """End a task, as POST …/cancel does."""
    return await _cancel(request)


async def _cancel(request: Request) -> Response:
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    found = await parts.timeouts.writing(parts.canceller.cancel(credential, [task_id]))
    if task_id not in found:
        async with reading(parts, credential) as conn:
            view = await read_task(conn, credential.tenant_id, task_id)
        if view.status is not Status.CANCELLED:
            raise Conflict(
                f"The task is {view.status}; there is nothing left to cancel.", status=view.status
            )
    return await answer_task(parts, credential, task_id)


@route(
    "POST",
    ["/v1/tasks/cancel", "/v1/jobs/cancel"],
    "Cancel all tasks that match a filter",
    access=Access.SUBMIT,
    takes=WhichTasks,
    gives=shapes.Cancelled,
    errors=(413, 422),
)
async def cancel_many(request: Request) -> Response:
    """Cancel the live tasks that are meant, in batches, newest first."""
    canceller, credential = parts_of(request).canceller, credential_of(request)
    found, more = await in_batches(
        request, "cancelled", lambda ids: canceller.cancel(credential, ids)
    )
    return as_json(shapes.Cancelled(sum(map(len, found)), more=more))


@route(
    "POST",
    [f"{path}/replay" for path in ONE],
    "Submit an ended task once more",
    access=Access.SUBMIT,
    takes=ReplayRequest,
    gives=shapes.Task,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def replay(request: Request) -> Response:
    """Store a new task that asks for the same, linked to the old one.

    With `downstream`, those that were cancelled because of how it ended are stored anew with it.
    """
    return await replay_task(request, dead=False)


async def replay_task(request: Request, *, dead: bool) -> Response:
    """Replay the task of the path; with `dead` it must be among the dead letters."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "dead letter" if dead else "task")
    query_of(request)
    body = await read_json(request)
    downstream = bool(body) and decode(body, REPLAY).downstream
    async with reading(parts, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
    if view.status not in FINAL:
        raise Conflict(
            f"The task is {view.status}; only one that has ended can be replayed.",
            status=view.status,
        )
    replayer = parts.downstream if downstream else parts.replayer
    patience = BATCH_PATIENCE if downstream else None
    storing = replayer.replay(credential, task_id, dead=dead)
    fresh = await parts.timeouts.writing(storing, patience)
    return with_rate(await answer_task(parts, credential, fresh, 201), parts, credential)


HANDLERS = [cancel, delete, cancel_many, replay]
