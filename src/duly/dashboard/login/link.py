"""The one-time login link to the dashboard, kept in a file that only its owner can read.

Any process that can write the file can create a link: `duly up`, which starts the dashboard, and
`duly link`. The file holds the newest link, so older ones are void. Only the dashboard's process
knows that a link has been used; every start of the dashboard creates a new one.
"""

import hashlib
import hmac
import secrets
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from duly import clock
from duly.private_file import write_private

LINK_LIFETIME = timedelta(minutes=5)
NAME = "pages.link"
"""The name of the file in the data folder."""
PATH = "/open"


class Opening(Enum):
    """The result of opening a link."""

    ACCEPTED = auto()
    EXPIRED = auto()
    VOID = auto()
    """The link was used, there is a newer one, or it never existed."""


class LinkFile:
    """The link's file, and whether the link in it has been used."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._used: bytes | None = None

    def renew(self, address: str) -> str:
        """Write a new link to the dashboard at `address` into the file, and return it."""
        expires_at = int(clock.monotonic() + LINK_LIFETIME.total_seconds())
        # The expiry is part of the token that is compared, so it cannot be extended.
        link = f"{address}{PATH}?token={secrets.token_urlsafe(16)}.{expires_at}"
        write_private(self.file, link + "\n")
        return link

    def address(self) -> str:
        """Return the dashboard's address, which is part of the newest link."""
        parts = urlsplit(self.file.read_text().strip())
        return f"{parts.scheme}://{parts.netloc}"

    def open(self, token: str) -> Opening:
        """Check `token` and, if it is valid, mark it as used."""
        current = self._token()
        given = _digest(token)
        if not current or given == self._used or not hmac.compare_digest(given, _digest(current)):
            return Opening.VOID
        if clock.monotonic() >= int(current.rpartition(".")[2]):
            return Opening.EXPIRED
        self._used = given
        return Opening.ACCEPTED

    def _token(self) -> str:
        try:
            query = parse_qs(urlsplit(self.file.read_text().strip()).query)
        except OSError:
            return ""
        return query.get("token", [""])[0]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
