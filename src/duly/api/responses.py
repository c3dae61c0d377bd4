"""The two responses that most handlers return: JSON, or no content."""

from typing import Any

import msgspec
from starlette.responses import Response

JSON_MEDIA_TYPE = "application/json"
ENCODER = msgspec.json.Encoder()


def as_json(value: Any, status: int = 200) -> Response:
    """Return a response with `value` as its JSON body."""
    return Response(ENCODER.encode(value), status, media_type=JSON_MEDIA_TYPE)


def no_content() -> Response:
    """Return an empty 204 response."""
    return Response(status_code=204)
