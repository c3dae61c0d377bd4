"""Responses to unauthenticated requests, and the security headers of every response.

These few pages are plain HTML without any script, because the browser has not authenticated yet.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

COMMON_POLICY = ["base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"]
POLICY = "; ".join(
    [
        "default-src 'none'",
        # NiceGUI compiles its templates in the browser, which needs inline code and eval. Escaping
        # keeps tenants' text from becoming code; the policy blocks all other origins.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        *COMMON_POLICY,
    ]
)
PLAIN_POLICY = "; ".join(["default-src 'none'", "style-src 'unsafe-inline'", *COMMON_POLICY])
HEADERS: Headers = [
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Not `no-referrer`: browsers would then hide the origin of our own forms too.
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
CONTENT_POLICY = b"content-security-policy"


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the gate itself: a page or a redirect."""

    status: int
    html: str = ""
    headers: Headers = field(default_factory=list)

    async def __call__(self, send: Send) -> None:
        """Send the response."""
        body = self.html.encode()
        headers: Headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (CONTENT_POLICY, PLAIN_POLICY.encode()),
            *HEADERS,
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def redirect(target: str, *headers: tuple[bytes, bytes]) -> Response:
    """Redirect the browser to another page of the dashboard."""
    return Response(303, headers=[(b"location", target.encode()), *headers])


def with_security_headers(send: Send) -> Send:
    """Set the security headers on every response, overriding those of the app."""
    own_names = {name for name, _ in HEADERS} | {CONTENT_POLICY}

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            other_headers = [
                header
                for header in message.get("headers", [])
                if header[0].lower() not in own_names
                and not header[0].lower().startswith(b"access-control-")
            ]
            policy = (CONTENT_POLICY, POLICY.encode())
            message = {**message, "headers": [*other_headers, *HEADERS, policy]}
        await send(message)

    return send_with_headers
