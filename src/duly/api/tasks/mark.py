"""The route that marks a task as done or failed."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.body import decode_body
from duly.api.requests.lookups import id_of
from duly.api.requests.query import query_of
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.api.tasks.tasks import TASK_PATHS, task_response
from duly.model.requests.mark_request import MarkRequest, complete

MARK_DECODER = msgspec.json.Decoder(MarkRequest)


@route(
    "POST",
    [f"{path}/mark" for path in TASK_PATHS],
    "Mark a task as done or failed",
    access=Access.SUBMIT,
    request_body=MarkRequest,
    response_body=task_shapes.Task,
    errors=(404, 409, 413, 422),
)
async def mark(request: Request) -> Response:
    """End a task that has not ended as `done` or `failed`, with a result if it is done.

    A running attempt is stopped, and what it reports later changes nothing; its resources are free
    once its processes are gone. Dependants are freed or cancelled as after any other end. Repeating
    the call changes nothing.
    """
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    checked = complete(await decode_body(request, MARK_DECODER))
    await components.timeouts.writing(components.marker.mark(credential, task_id, checked))
    return await task_response(components, credential, task_id)


HANDLERS = [mark]
