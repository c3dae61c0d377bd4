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
from duly.dashboard.login.visitor import Visitor
from duly.errors import DulyError, Unauthenticated

INTERVAL = timedelta(seconds=2)
MAX_SESSIONS = 1000
"""Beyond this number, a new session ends the oldest."""
LOGOUT_TIMEOUT_SECONDS = 3.0


class Session:
    """The session of one browser: its user, its API client, and the feed of its pages."""

    def __init__(
        self, client: AsyncClient, visitor: Visitor, lifetime: float = float("inf")
    ) -> None:
        self.visitor = visitor
        self.feed = Feed(client, INTERVAL, visitor)
        self._client = client
        self._until = clock.monotonic() + lifetime
        self._is_closed = False
        self.end_notice: str | None = "ended"
        """The notice that its pages show when it is over; None during a logout."""

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
        self.end_notice = None
        reached = await self.close()
        self.end_notice = "out" if reached else "untold"
        return reached

    async def close(self) -> bool:
        """End the session here and on the server; return False if the server was not reached."""
        if self._is_closed:
            return True
        self._is_closed = True
        try:
            async with asyncio.timeout(LOGOUT_TIMEOUT_SECONDS):
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
        ended = [digest for digest, known in self._open.items() if known.is_over]
        if len(self._open) - len(ended) >= MAX_SESSIONS:
            ended.append(next(digest for digest in self._open if digest not in ended))
        session_id = secrets.token_urlsafe(32)
        self._open[_digest(session_id)] = session
        await self._close(ended)
        return session_id

    def find(self, session_id: str) -> Session | None:
        """Return the session with an id; None if there is none or it is over."""
        session = self._open.get(_digest(session_id))
        return None if session is None or session.is_over else session

    async def end(self, session_id: str) -> bool:
        """End the session with an id; return False if the server was not reached."""
        return await self._close([_digest(session_id)])

    async def leave(self, session_id: str) -> bool:
        """Log out of the session with an id; return False if the server was not reached."""
        session = self._open.pop(_digest(session_id), None)
        return session is None or await session.leave()

    async def end_all(self) -> None:
        """End all sessions, because the dashboard shuts down."""
        await self._close(list(self._open))

    async def _close(self, digests: list[bytes]) -> bool:
        closing = [session for digest in digests if (session := self._open.pop(digest, None))]
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(session.close()) for session in closing]
        return all(call.result() for call in calls)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
