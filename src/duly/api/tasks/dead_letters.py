"""Routes for dead letters: failed tasks set aside for a person."""

from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.lookups import id_of, not_found, read_task, tenant_connection
from duly.api.requests.query import encode_cursor, parse_since, query_of
from duly.api.responses import as_json, no_content
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.cancel import ReplayRequest, replay_task
from duly.api.tasks.tasks import PAGE_PARAMETERS
from duly.store.tasks import views

DEAD_LETTERS_PATH = "/v1/dead-letters"
DEAD_LETTER_PATH = "/v1/dead-letters/{id}"


@route(
    "GET",
    DEAD_LETTERS_PATH,
    "List dead letters, newest first",
    access=Access.READ,
    response_body=task_shapes.Page[task_shapes.Task],
    query=(
        Parameter("reason", "The reason code of the failure."),
        Parameter("since", "Failed since: a time, or a duration before now such as 1h."),
        *PAGE_PARAMETERS,
    ),
    errors=(422,),
)
async def list_dead_letters(request: Request) -> Response:
    """List dead letters, newest first."""
    components, credential = components_of(request), credential_of(request)
    query = query_of(request)
    limit, before = query.limit(), query.before_id()
    async with tenant_connection(components, credential) as conn:
        ids = await views.pick_dead_letters(
            conn,
            credential.tenant_id,
            code=query.get("reason"),
            since=await parse_since(conn, query.get("since")),
            before=before,
            limit=limit + 1,
        )
        page = ids[:limit]
        tasks = await views.read_many(conn, credential.tenant_id, page)
    cursor = encode_cursor(page[-1]) if len(ids) > limit else None
    scheduling = components.settings.scheduling
    items = [task_shapes.task(view, credential.tenant, scheduling) for view in tasks]
    return as_json(task_shapes.Page(items, cursor))


@route(
    "GET",
    DEAD_LETTER_PATH,
    "Get a dead letter",
    access=Access.READ,
    response_body=task_shapes.DeadLetter,
    errors=(404,),
)
async def get_dead_letter(request: Request) -> Response:
    """Get a dead letter: the task, its last attempt and the end of its log."""
    components, credential = components_of(request), credential_of(request)
    task_id, tenant_id = id_of(request, "dead letter"), credential.tenant_id
    query_of(request)
    async with tenant_connection(components, credential) as conn:
        if not await views.is_dead_letter(conn, tenant_id, task_id):
            raise not_found("dead letter", task_id)
        view = await read_task(conn, tenant_id, task_id)
        attempts = await views.read_attempts(conn, tenant_id, task_id)
        end = await views.read_log_end(conn, tenant_id, task_id, None)
    task = task_shapes.task(view, credential.tenant, components.settings.scheduling)
    return as_json(task_shapes.dead_letter(task, attempts, b"" if end is None else end.tail))


@route(
    "DELETE",
    DEAD_LETTER_PATH,
    "Drop a dead letter",
    access=Access.SUBMIT,
    statuses=(204,),
    errors=(404,),
)
async def drop_dead_letter(request: Request) -> Response:
    """Drop a dead letter. The task and its history stay."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "dead letter")
    query_of(request)
    await components.timeouts.writing(components.replayer.drop_dead_letter(credential, task_id))
    return no_content()


@route(
    "POST",
    f"{DEAD_LETTER_PATH}/replay",
    "Replay a dead letter",
    access=Access.SUBMIT,
    request_body=ReplayRequest,
    response_body=task_shapes.Task,
    statuses=(201,),
    errors=(404, 409, 413, 422, 429),
)
async def replay_dead_letter(request: Request) -> Response:
    """Submit a copy of the failed task, and drop the dead letter.

    With `downstream`, the downstream tasks that its outcome cancelled are replayed with it.
    """
    return await replay_task(request, dead=True)


HANDLERS = [list_dead_letters, get_dead_letter, drop_dead_letter, replay_dead_letter]
