"""What a running attempt may say of itself, under a key of its own."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.body import decode, read_body
from duly.api.query import query_of
from duly.api.responses import no_content
from duly.api.routes import parts_of, route
from duly.model.attempt_key import AttemptKey
from duly.model.progress import check_progress

LONGEST = 8192
"""Bytes of a body: a text of the longest kind, however it is escaped."""


class ProgressBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the attempt has come, from 0 to 1, and a line about it."""

    fraction: float
    text: str | None = None


BODY = msgspec.json.Decoder(ProgressBody)


@route(
    "PUT",
    "/v1/attempt/progress",
    "Say how far an attempt has come",
    access=Access.ATTEMPT,
    takes=ProgressBody,
    statuses=(204,),
    errors=(400, 413, 422),
)
async def put_progress(request: Request) -> Response:
    """Show it with the task while the attempt runs; what was said before is forgotten."""
    parts = parts_of(request)
    key: AttemptKey = request.scope["auth"]
    query_of(request)
    asked = decode(await read_body(request, LONGEST), BODY)
    progress = check_progress(asked.fraction, asked.text)
    await parts.timeouts.writing(parts.attempt_keys.say(key, progress))
    return no_content()


HANDLERS = [put_progress]
