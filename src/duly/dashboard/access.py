"""Who may look at the pages: the browser that opened the one-time link, and nobody else.

The link carries a token that works once. Whoever opens it first gets a session
cookie, and the token is void from then on, so that a link in a shell history or a
shared screen is worth nothing. The gate stands in front of everything, the
websocket included, and lets no request through that a foreign page could have made.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

POLICY = "; ".join(
    [
        "default-src 'none'",
        # NiceGUI compiles its templates in the browser, which needs inline code and eval. What
        # keeps tenants' text from becoming code is escaping; this keeps all else from elsewhere.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: Headers = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Duly</title>{head}
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 20vh auto; padding: 1rem }}
</style></head><body><h1>Duly</h1><p>{text}</p></body></html>
"""
OPENED = "You are in. <a href='/'>Go to the overview.</a>"
USED = "This link has been used. It works once; start <code>duly up</code> again for a new one."
CLOSED = "To see this page, open the link that <code>duly up</code> printed when it started."
FOREIGN = "This address is not served here. Open the link that <code>duly up</code> printed."


class Gate:
    """Wraps an ASGI app, so that only the session that used the link gets through."""

    def __init__(self, app: App, token: str, host: str, port: int) -> None:
        self.app = app
        self._token: bytes | None = _digest(token)
        self._session: bytes | None = None
        self._host = host
        # Browsers share cookies between the ports of a host, so the name tells them apart.
        self._cookie = f"duly_pages_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for the app, or let the request through to it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers)
        if scope["type"] == "http" and scope["path"] == "/open" and refusal in (None, CLOSED):
            await self._open(scope, headers, send)
        elif refusal is None:
            scope["headers"] = [
                header for header in scope["headers"] if not header[0].startswith(b"x-forwarded-")
            ]
            await self.app(scope, receive, _guarded(send))
        elif scope["type"] == "websocket":
            # Closing before accepting makes the server answer the handshake with 403.
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _answer(send, 401 if refusal == CLOSED else 403, refusal)

    def _refusal(self, headers: dict[bytes, str]) -> str | None:
        """Say why a request may not pass; None means that it may."""
        host = headers.get(b"host", "")
        if not is_own_name(host, self._host):
            return FOREIGN
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            return FOREIGN
        return None if self._is_known(headers) else CLOSED

    def _is_known(self, headers: dict[bytes, str]) -> bool:
        # By hand, because http.cookies drops every cookie when it dislikes one of a neighbour's.
        pairs = (part.strip().partition("=") for part in headers.get(b"cookie", "").split(";"))
        return any(
            name == self._cookie and _matches(value, self._session) for name, _, value in pairs
        )

    async def _open(self, scope: Scope, headers: dict[bytes, str], send: Send) -> None:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["method"] != "GET" or not _matches(given, self._token):
            known = self._is_known(headers)
            await _answer(send, 403, f"{USED} {OPENED}" if known else USED)
            return
        session = secrets.token_urlsafe(32)
        self._token, self._session = None, _digest(session)
        cookie = f"{self._cookie}={session}; Path=/; HttpOnly; SameSite=Strict"
        # A page that goes on by itself, not a redirect: a strict cookie would not follow a
        # redirect that began with a click on some other page.
        await _answer(
            send,
            200,
            OPENED,
            head='<meta http-equiv="refresh" content="0; url=/">',
            extra=[(b"set-cookie", cookie.encode())],
        )


def is_own_name(host: str, bound: str) -> bool:
    """Say whether `host`, as a browser sent it, can only mean this machine.

    An address cannot be pointed elsewhere by a foreign name server, and `localhost` is resolved
    by the browser itself; any other name must be the one that the pages were started with.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", bound.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _matches(given: str, digest: bytes | None) -> bool:
    return digest is not None and hmac.compare_digest(_digest(given), digest)


def _guarded(send: Send) -> Send:
    """Put the security headers on every answer, over whatever the app says itself."""
    ours = {name for name, _ in HEADERS}

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            kept = [
                header
                for header in message.get("headers", [])
                if header[0].lower() not in ours
                and not header[0].lower().startswith(b"access-control-")
            ]
            message = {**message, "headers": [*kept, *HEADERS]}
        await send(message)

    return guarded


async def _answer(
    send: Send, status: int, text: str, *, head: str = "", extra: Headers | None = None
) -> None:
    body = PAGE.format(text=text, head=head).encode()
    headers: Headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *HEADERS,
        *(extra or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
