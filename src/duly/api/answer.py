"""Answers: a status, a body of bytes, and nothing that is computed per request.

They are ASGI applications, which Litestar sends as they are: the path of a submit
is short, and every answer of the API looks the same.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.types import Receive, Scope, Send

JSON = b"application/json"
MSGPACK = b"application/x-msgpack"
TEXT = b"text/plain; charset=utf-8"
HTML = b"text/html; charset=utf-8"

ENCODER = msgspec.json.Encoder()
WRITE = "duly.write"
"""In the scope of a request of which all has come: what sends a whole answer, if it can."""


class Answer:
    """A whole answer, ready to be sent."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        media_type: bytes = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = [
            (b"content-type", media_type),
            (b"content-length", str(len(body)).encode()),
        ]
        if headers:
            self.headers += [(k.lower().encode(), v.encode()) for k, v in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        body = b"" if scope.get("method") == "HEAD" else self.body
        await send({"type": "http.response.body", "body": body, "more_body": False})


def as_json(value: Any, status: int = 200) -> Answer:
    """Return `value` as JSON."""
    return Answer(ENCODER.encode(value), status)


def no_content() -> Answer:
    """Return the answer to what leaves nothing to be said."""
    answer = Answer(b"", 204)
    answer.headers = []
    return answer
