"""A request as the gate reads it: little, and by hand, because anybody may send it."""

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from duly.dashboard.answers import Receive, Scope

LARGEST = 16 * 1024
"""Bytes of a form."""
PATIENCE = 10.0
"""Seconds for a form to come in."""
FORM = "application/x-www-form-urlencoded"
OWN_PAGES = re.compile(r"/(?:\?task=[0-9]{1,19})?")
"""Every address that one can be sent to after logging in; all else would be somebody else's."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What is known of a request before anything is done for it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[bytes, str]
    is_secure: bool = False

    @classmethod
    def of(cls, scope: Scope) -> "Visit":
        """Read what the web server tells."""
        return cls(
            method=scope.get("method", "GET"),
            path=scope["path"],
            query=_pairs(scope["query_string"]),
            headers={name: value.decode("latin-1") for name, value in scope["headers"]},
            is_secure=scope.get("scheme") in ("https", "wss"),
        )

    def cookies(self, name: str) -> list[str]:
        """Return what the browser holds under `name`; a neighbour may have put another beside."""
        # By hand, because http.cookies drops every cookie when it dislikes one of a neighbour's.
        pairs = (part.strip().partition("=") for part in self.headers.get(b"cookie", "").split(";"))
        return [value for found, _, value in pairs if found == name]

    def is_foreign(self, bound: str) -> bool:
        """Say whether a page of somebody else could have made this request.

        Browsers say where a form or a websocket comes from, so what changes anything and does
        not say it is not from one of our pages. It is what keeps others from logging a browser
        in or out: the cookie, which they cannot send along, is not needed for either.
        """
        host = self.headers.get(b"host", "")
        origin = self.headers.get(b"origin")
        if not is_own_name(host, bound):
            return True
        if origin is None:
            return self.method not in ("GET", "HEAD")
        return origin.partition("://")[2] != host

    @property
    def where(self) -> str:
        """The page that is asked for, to come back to it."""
        task = self.query.get("task")
        return own_page(f"{self.path}?task={quote(task)}" if task else self.path)


def own_page(text: str) -> str:
    """Return `text` if it is one of our pages, and the first of them if it is anything else."""
    return text if OWN_PAGES.fullmatch(text) else "/"


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


async def read_form(visit: Visit, receive: Receive) -> dict[str, str] | None:
    """Return the fields of a form; None if what comes is none, too large, or not coming."""
    if visit.headers.get(b"content-type", "").partition(";")[0].strip().lower() != FORM:
        return None
    body = b""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > LARGEST or message["type"] == "http.disconnect":
                    return None
                if not message.get("more_body"):
                    return _pairs(body)
    except TimeoutError:
        return None


def _pairs(text: bytes) -> dict[str, str]:
    try:
        # Latin-1 keeps every byte; what is written with percent signs is read as UTF-8.
        return dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return {}
