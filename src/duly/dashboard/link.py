"""The one-time link to the pages, kept in a file that only its owner can read.

Whoever can write the file can make a new link: `duly up`, which starts the pages, and `duly link`
beside it. The file holds the newest link, so an older one is void. That a link has been used is
known to the pages alone; there is another link whenever they are started again.
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

LINK_LASTS = timedelta(minutes=5)
NAME = "pages.link"
"""What the file is called, in the data folder."""
PATH = "/open"


class Opening(Enum):
    """What comes of opening a link."""

    LET_IN = auto()
    EXPIRED = auto()
    VOID = auto()
    """It was used, there is a newer one, or it never was a link."""


class LinkFile:
    """The file, and whether the link in it has been used."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._used: bytes | None = None

    def renew(self, address: str) -> str:
        """Put a new link to the pages at `address` into the file, and return it."""
        until = int(clock.monotonic() + LINK_LASTS.total_seconds())
        # When it ends is part of what is compared, so nobody can make it last longer.
        link = f"{address}{PATH}?token={secrets.token_urlsafe(16)}.{until}"
        write_private(self.file, link + "\n")
        return link

    def address(self) -> str:
        """Return where the pages are, as the newest link has it."""
        parts = urlsplit(self.file.read_text().strip())
        return f"{parts.scheme}://{parts.netloc}"

    def open(self, token: str) -> Opening:
        """Say whether `token` lets somebody in; if it does, it has been used from then on."""
        known = self._token()
        given = _digest(token)
        if not known or given == self._used or not hmac.compare_digest(given, _digest(known)):
            return Opening.VOID
        if clock.monotonic() >= int(known.rpartition(".")[2]):
            return Opening.EXPIRED
        self._used = given
        return Opening.LET_IN

    def _token(self) -> str:
        try:
            found = parse_qs(urlsplit(self.file.read_text().strip()).query)
        except OSError:
            return ""
        return found.get("token", [""])[0]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
