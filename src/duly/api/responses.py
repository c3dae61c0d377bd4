"""The responses that most handlers return: a value as JSON, or nothing."""

from typing import Any

import msgspec
from starlette.responses import Response

JSON = "application/json"
ENCODER = msgspec.json.Encoder()


def as_json(value: Any, status: int = 200) -> Response:
    """Return `value` as JSON."""
    return Response(ENCODER.encode(value), status, media_type=JSON)


def no_content() -> Response:
    """Return the response to what leaves nothing to be said."""
    return Response(status_code=204)
