"""The sessions of authenticated browsers.

A browser holds a random id and nothing else. The session's API key stays in this process, with a
client of its own, so a browser sees no more than the API shows to that key.
"""

import asyncio
import hashlib
import secrets
from datetime import timedelta

from duly import clock
from duly.client.aio import AsyncClient
from duly.dashboard.feed import Feed
from duly.dashboard.visitor import Visitor
from duly.errors import DulyError, Unauthenticated

INTERVAL = timedelta(seconds=2)
MOST = 1000
"""Maximum number of sessions; beyond that, the oldest ends."""
TELLING = 3.0
"""Timeout in seconds for logging out on the server."""


class Session:
    """The session of one browser: its user, its API client, and the feed of its pages."""

    def __init__(self, client: AsyncClient, visitor: Visitor, lasts: float = float("inf")) -> None:
        self.visitor = visitor
        self.feed = Feed(client, INTERVAL, visitor)
        self._client = client
        self._until = clock.monotonic() + lasts
        self._is_closed = False
        self.farewell: str | None = "ended"
        """Which notice its pages show when it is over; None during a logout."""

    @property
    def is_over(self) -> bool:
        """Whether the browser must log in again."""
        was_refused = self.feed.is_refused and self._is_login
        return self._is_closed or was_refused or clock.monotonic() >= self._until

    @property
    def _is_login(self) -> bool:
        return self.visitor.user is not None

    async def leave(self) -> bool:
        """Log out at the user's request; open pages show that, not that the session has ended."""
        self.farewell = None
        told = await self.close()
        self.farewell = "out" if told else "untold"
        return told

    async def close(self) -> bool:
        """End the session here and on the server; return False if the server was not reached."""
        if self._is_closed:
            return True
        self._is_closed = True
        try:
            async with asyncio.timeout(TELLING):
                if self._is_login:
                    await self._client.log_out()
        except Unauthenticated:
            return True  # The key was no longer valid.
        except (DulyError, OSError, TimeoutError):
            return False
        finally:
            await self._client.close()
        return True


class Sessions:
    """All sessions, by the digest of the id that the browser holds."""

    def __init__(self) -> None:
        self._open: dict[bytes, Session] = {}

    async def begin(self, session: Session) -> str:
        """Add a session, and return the id for the browser's cookie."""
        over = [digest for digest, one in self._open.items() if one.is_over]
        if len(self._open) - len(over) >= MOST:
            over.append(next(digest for digest in self._open if digest not in over))
        shown = secrets.token_urlsafe(32)
        self._open[_digest(shown)] = session
        await self._close(over)
        return shown

    def find(self, shown: str) -> Session | None:
        """Return the session with an id; None if there is none or it is over."""
        found = self._open.get(_digest(shown))
        return None if found is None or found.is_over else found

    async def end(self, shown: str) -> bool:
        """End the session with an id; return False if the server was not reached."""
        return await self._close([_digest(shown)])

    async def leave(self, shown: str) -> bool:
        """Log out of the session with an id; return False if the server was not reached."""
        session = self._open.pop(_digest(shown), None)
        return session is None or await session.leave()

    async def end_all(self) -> None:
        """End all sessions, because the dashboard shuts down."""
        await self._close(list(self._open))

    async def _close(self, digests: list[bytes]) -> bool:
        ending = [one for digest in digests if (one := self._open.pop(digest, None))]
        async with asyncio.TaskGroup() as group:
            told = [group.create_task(one.close()) for one in ending]
        return all(one.result() for one in told)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
