"""The route with which a running attempt reports its progress, authenticated by its own key."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.requests.body import decode, read_body
from duly.api.requests.query import query_of
from duly.api.responses import no_content
from duly.api.routes import components_of, route
from duly.model.attempt_key import AttemptKey
from duly.model.progress import check_progress

MAX_BODY_BYTES = 8192
"""Enough for a text of the maximum length, however it is escaped."""


class ProgressRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The progress of an attempt: a fraction from 0 to 1 and an optional line of text."""

    fraction: float
    text: str | None = None


PROGRESS_DECODER = msgspec.json.Decoder(ProgressRequest)


@route(
    "PUT",
    "/v1/attempt/progress",
    "Report the progress of an attempt",
    access=Access.ATTEMPT,
    request_body=ProgressRequest,
    statuses=(204,),
    errors=(400, 413, 422),
)
async def put_progress(request: Request) -> Response:
    """Report progress, which the task shows while the attempt runs. It replaces earlier reports."""
    components = components_of(request)
    key: AttemptKey = request.scope["auth"]
    query_of(request)
    report = decode(await read_body(request, MAX_BODY_BYTES), PROGRESS_DECODER)
    progress = check_progress(report.fraction, report.text)
    await components.timeouts.writing(components.attempt_keys.record_progress(key, progress))
    return no_content()


HANDLERS = [put_progress]
