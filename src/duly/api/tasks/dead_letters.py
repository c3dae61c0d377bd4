"""Dead letters: failed tasks that were set aside for a person."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api import shapes
from duly.api.auth import Access
from duly.api.cancel import ReplayRequest, replay_task
from duly.api.query import query_of, since, write_cursor
from duly.api.reading import id_of, not_found, read_task, reading
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.api.tasks import PAGE
from duly.store import views

ALL = "/v1/dead-letters"
ONE = "/v1/dead-letters/{id}"


@route(
    "GET",
    ALL,
    "List the dead letters, newest first",
    access=Access.READ,
    gives=shapes.Page[shapes.Task],
    query=(
        Parameter("reason", "The code of the reason why it failed."),
        Parameter("since", "Failed since: a time, or a duration such as 1h."),
        *PAGE,
    ),
    errors=(422,),
)
async def list_dead_letters(request: Request) -> Response:
    """Return a page of the tasks that failed for good."""
    parts, credential = parts_of(request), credential_of(request)
    query = query_of(request)
    limit, before = query.limit(), query.before()
    async with reading(parts, credential) as conn:
        ids = await views.pick_dead_letters(
            conn,
            credential.tenant_id,
            code=query.one("reason"),
            since=await since(conn, query.one("since")),
            before=before,
            limit=limit + 1,
        )
        page = ids[:limit]
        found = await views.read_many(conn, credential.tenant_id, page)
    cursor = write_cursor(page[-1]) if len(ids) > limit else None
    scheduling = parts.settings.scheduling
    items = [shapes.task(view, credential.tenant, scheduling) for view in found]
    return as_json(shapes.Page(items, cursor))


@route(
    "GET",
    ONE,
    "Look at a dead letter",
    access=Access.READ,
    gives=shapes.DeadLetter,
    errors=(404,),
)
async def get_dead_letter(request: Request) -> Response:
    """Return the task with its last attempt and the end of its log."""
    parts, credential = parts_of(request), credential_of(request)
    task_id, tenant_id = id_of(request, "dead letter"), credential.tenant_id
    query_of(request)
    async with reading(parts, credential) as conn:
        if not await views.is_dead_letter(conn, tenant_id, task_id):
            raise not_found("dead letter", task_id)
        view = await read_task(conn, tenant_id, task_id)
        attempts = await views.read_attempts(conn, tenant_id, task_id)
        end = await views.read_log_end(conn, tenant_id, task_id, None)
    told = shapes.task(view, credential.tenant, parts.settings.scheduling)
    return as_json(shapes.dead_letter(told, attempts, b"" if end is None else end.tail))


@route(
    "DELETE",
    ONE,
    "Drop a dead letter",
    access=Access.SUBMIT,
    statuses=(204,),
    errors=(404,),
)
async def drop_dead_letter(request: Request) -> Response:
    """Take a task out of the dead letters; its history stays."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "dead letter")
    query_of(request)
    await parts.timeouts.writing(parts.replayer.drop_dead_letter(credential, task_id))
    return no_content()


@route(
    "POST",
    f"{ONE}/replay",
    "Submit a dead letter once more",
    access=Access.SUBMIT,
    takes=ReplayRequest,
    gives=shapes.Task,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def replay_dead_letter(request: Request) -> Response:
    """Store a new task that asks for the same; the old one leaves the dead letters.

    With `downstream`, those that were cancelled because of how it ended are stored anew with it.
    """
    return await replay_task(request, dead=True)


HANDLERS = [list_dead_letters, get_dead_letter, drop_dead_letter, replay_dead_letter]
