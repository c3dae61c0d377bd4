"""Routes for stages and children: what a running attempt records and submits, and who reads it."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.body import check_json, decode, read_body, read_json_body
from duly.api.requests.lookups import id_of, read_task, tenant_connection
from duly.api.requests.query import query_of
from duly.api.requests.whole_lists import page_of
from duly.api.responses import JSON_MEDIA_TYPE, as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.tasks import (
    PAGE_PARAMETERS,
    TASK_DECODER,
    TASK_PATHS,
    idempotency_key,
    task_response,
)
from duly.errors import Invalid
from duly.model.attempt_key import AttemptKey
from duly.model.requests.task_request import TaskRequest, complete
from duly.model.requests.texts import bounded_text
from duly.server.lifecycle.attempt_calls import MAX_STAGES
from duly.store.attempts import stages

MAX_STAGE_NAME_CHARS = 200


@route(
    "PUT",
    "/v1/attempt/stages/{name}",
    "Record a stage of the task",
    access=Access.ATTEMPT,
    request_body=Any,
    response_body=Any,
    errors=(400, 413, 422),
)
async def put_stage(request: Request) -> Response:
    """Record the result of a stage, once: the response is what is recorded under its name."""
    components = components_of(request)
    key: AttemptKey = request.scope["auth"]
    query_of(request)
    name = bounded_text(request.path_params["name"], "name", MAX_STAGE_NAME_CHARS) or ""
    body = await read_body(request, components.settings.execution.result_limit)
    check_json(body)
    saving = components.attempt_calls.save_stage(key, name, body.decode())
    result = await components.timeouts.writing(saving)
    return Response(result, media_type=JSON_MEDIA_TYPE)


@route(
    "GET",
    "/v1/attempt/stages",
    "Get the stages that the task has recorded",
    access=Access.ATTEMPT,
    response_body=task_shapes.StageResults,
)
async def get_own_stages(request: Request) -> Response:
    """Get the results of all stages that attempts at the task have recorded, by name."""
    components = components_of(request)
    query_of(request)
    recorded = await components.attempt_calls.read_stages(request.scope["auth"])
    results = {stage.name: msgspec.Raw(stage.result.encode()) for stage in recorded}
    return as_json(task_shapes.StageResults(results))


@route(
    "POST",
    "/v1/attempt/tasks",
    "Submit a child of the task",
    access=Access.ATTEMPT,
    request_body=TaskRequest,
    accepts_idempotency_key=True,
    response_body=task_shapes.Task,
    statuses=(201, 200),
    errors=(400, 409, 413, 422, 429),
)
async def submit_child(request: Request) -> Response:
    """Submit a task of the same tenant, linked to the attempt's. It needs an idempotency key."""
    components = components_of(request)
    key: AttemptKey = request.scope["auth"]
    query_of(request)
    task = decode(await read_json_body(request), TASK_DECODER)
    task.idempotency_key = task.idempotency_key or idempotency_key(request)
    if task.idempotency_key is None:
        raise Invalid(
            "idempotency_key",
            "it is missing. An attempt that is repeated must not submit the task again.",
        )
    owner = await components.attempt_calls.owner(key)
    spec = complete(task, owner.plan)
    submitting = components.attempt_calls.submit(key, owner, spec)
    admitted = await components.timeouts.writing(submitting)
    return await task_response(components, owner, admitted.id, 201 if admitted.created else 200)


@route(
    "GET",
    [f"{path}/stages" for path in TASK_PATHS],
    "List the stages of a task",
    access=Access.READ,
    response_body=task_shapes.Page[task_shapes.Stage],
    query=PAGE_PARAMETERS,
    errors=(404, 422),
)
async def list_stages(request: Request) -> Response:
    """List the stages that attempts at a task have recorded, with their results."""
    components, credential = components_of(request), credential_of(request)
    task_id, query = id_of(request, "task"), query_of(request)
    async with tenant_connection(components, credential) as conn:
        found = await stages.read_all(conn, task_id, tenant_id=credential.tenant_id)
        if not found:
            await read_task(conn, credential.tenant_id, task_id)
    items = [
        task_shapes.Stage(
            name=stage.name,
            attempt=stage.attempt,
            recorded_at=stage.recorded_at,
            result=msgspec.Raw(stage.result.encode()),
        )
        for stage in found
    ]
    page, cursor = page_of(items, query, lambda stage: stage.name, default_limit=MAX_STAGES)
    return as_json(task_shapes.Page(list(page), cursor))


HANDLERS = [put_stage, get_own_stages, submit_child, list_stages]
