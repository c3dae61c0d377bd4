"""Parses requests for the gate: only what it needs, and by hand, because anyone may send them."""

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from duly.dashboard.login.responses import Receive, Scope

MAX_FORM_BYTES = 16 * 1024
FORM_TIMEOUT_SECONDS = 10.0
FORM_TYPE = "application/x-www-form-urlencoded"
KNOWN_PAGES = re.compile(r"/(?:\?task=[0-9]{1,19})?")
"""The pages to which a login may redirect; any other target could be a foreign site."""


@dataclass(frozen=True, slots=True)
class GateRequest:
    """The parts of a request that the gate examines before it does anything."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[bytes, str]
    is_secure: bool = False

    @classmethod
    def of(cls, scope: Scope) -> "GateRequest":
        """Read an ASGI scope."""
        return cls(
            method=scope.get("method", "GET"),
            path=scope["path"],
            query=_pairs(scope["query_string"]),
            headers={name: value.decode("latin-1") for name, value in scope["headers"]},
            is_secure=scope.get("scheme") in ("https", "wss"),
        )

    def cookies(self, name: str) -> list[str]:
        """Return all cookies called `name`: another program on the host may have set one too."""
        # By hand: http.cookies drops all cookies if it dislikes one, such as another program's.
        pairs = (part.strip().partition("=") for part in self.headers.get(b"cookie", "").split(";"))
        return [value for key, _, value in pairs if key == name]

    def is_foreign(self, bound: str) -> bool:
        """Return True if a foreign page could have made this request.

        Browsers send the origin of forms and websockets, so a request that changes anything and
        has no origin is not from our pages. This check prevents foreign pages from logging a
        browser in or out: neither needs the session cookie, which they cannot send.
        """
        host = self.headers.get(b"host", "")
        origin = self.headers.get(b"origin")
        if not is_own_host(host, bound):
            return True
        if origin is None:
            return self.method not in ("GET", "HEAD")
        return origin.partition("://")[2] != host

    @property
    def target(self) -> str:
        """The requested page, to return to it after the login."""
        task = self.query.get("task")
        return known_page(f"{self.path}?task={quote(task)}" if task else self.path)


def known_page(text: str) -> str:
    """Return `text` if it is a page of the dashboard, else the path of the overview."""
    return text if KNOWN_PAGES.fullmatch(text) else "/"


def is_own_host(host: str, bound: str) -> bool:
    """Return True if `host`, as sent by a browser, can only mean this machine.

    A foreign name server cannot point an IP address elsewhere, and `localhost` is resolved by the
    browser itself; any other name must be the one that the dashboard was started with.
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


async def read_form(request: GateRequest, receive: Receive) -> dict[str, str] | None:
    """Return the fields of a form; None if it is not a form, is too large, or times out."""
    if request.headers.get(b"content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        return None
    body = b""
    try:
        async with asyncio.timeout(FORM_TIMEOUT_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MAX_FORM_BYTES or message["type"] == "http.disconnect":
                    return None
                if not message.get("more_body"):
                    return _pairs(body)
    except TimeoutError:
        return None


def _pairs(text: bytes) -> dict[str, str]:
    try:
        # Latin-1 keeps every byte; percent-encoded text is decoded as UTF-8.
        return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return {}
