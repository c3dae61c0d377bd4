"""Authenticates people: by a password that the server checks, or by the one-time link."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

from duly.client.aio import AsyncClient
from duly.client.retry import Patience
from duly.dashboard.login.link import LinkFile, Opening
from duly.dashboard.login.sessions import Session
from duly.dashboard.login.visitor import ADMINISTRATOR, Visitor
from duly.dashboard.options import Link
from duly.errors import DulyError, LimitExceeded, Unauthenticated, Unavailable, Unreachable

NO_RETRIES = Patience(total=timedelta(0))
"""No retries inside a call: the page itself polls again, and shows the problem meanwhile."""
LOGIN_TIMEOUT_SECONDS = 20.0
WRONG_CREDENTIALS = "The tenant, the user or the password is wrong."
NO_RESPONSE = "The server does not answer. Try again in a moment."


class Authenticator:
    """Creates sessions for people with a valid password or link."""

    def __init__(self, url: str, ca_file: str | None = None, link: Link | None = None) -> None:
        self._url = url
        self._ca_file = ca_file
        self._link = link
        self._file = None if link is None else LinkFile(Path(link.file))

    @property
    def has_link(self) -> bool:
        """Whether the dashboard has a one-time link, used or not."""
        return self._link is not None

    async def log_in(self, tenant: str, user: str, password: str) -> Session:
        """Return a new session of a user; raises the errors that `refusal` describes."""
        async with asyncio.timeout(LOGIN_TIMEOUT_SECONDS), self._client(None) as client:
            key = await client.log_in(tenant, user, password)
        visitor = Visitor(frozenset(key["scopes"]), key["tenant"], key["user"])
        lifetime = _parse_time(key["expires_at"]) - _parse_time(key["created_at"])
        return Session(self._client(key["key"]), visitor, lifetime.total_seconds())

    def open_link(self, token: str) -> Session | Opening:
        """Exchange the link's token, once, for an administrator's session; else return why not."""
        if self._link is None or self._file is None:
            return Opening.VOID
        opening = self._file.open(token)
        if opening is not Opening.ACCEPTED:
            return opening
        return Session(self._client(self._link.key), ADMINISTRATOR)

    def _client(self, key: str | None) -> AsyncClient:
        return AsyncClient(self._url, key, ca_file=self._ca_file, patience=NO_RETRIES)


def refusal(error: Exception) -> tuple[int, str, timedelta | None]:
    """Return the response to a failed login: status, one sentence, how long to wait.

    The server's address, and its errors about a name, are not disclosed to strangers.
    """
    match error:
        case LimitExceeded():
            return 429, error.message, error.retry_after
        case Unreachable() | OSError() | TimeoutError():
            return 503, NO_RESPONSE, None
        case Unavailable():
            return 503, error.message, error.retry_after
        case Unauthenticated():
            return 401, error.message, None
        case DulyError():
            return 401, WRONG_CREDENTIALS, None
    raise error


def _parse_time(text: str | None) -> datetime:
    return datetime.fromisoformat(text or "")
