"""Refuses submissions before anything is stored, by what is known here of a tenant's limits.

Every way to submit goes through it: one task, a batch, a graph, a replay. It costs next to
nothing and is not exact. The rate is charged for certain where tasks are stored
(`rate_limiter.py`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from duly.model.tenant import Credential
from duly.server.backlog import Backlog
from duly.server.rate_limiter import RateLimiter


@dataclass(slots=True)
class Entry:
    """A submission that was let in."""

    stored: int = 0
    """How many of its tasks were stored; whoever has entered says so."""


class AdmissionControl:
    """Asks the rate limiter and the backlog on behalf of whoever submits."""

    def __init__(self, rate_limiter: RateLimiter, backlog: Backlog) -> None:
        self._rate_limiter = rate_limiter
        self._backlog = backlog

    @asynccontextmanager
    async def enter(
        self,
        credential: Credential,
        tasks: int,
        is_known: Callable[[], Awaitable[bool]],
        *,
        certainly_new: int,
    ) -> AsyncIterator[Entry]:
        """Let tasks in while they are being stored, or raise LimitExceeded.

        What was submitted before is free: the rate is asked for those that are `certainly_new`,
        and `is_known` says whether the others need no room.
        """
        if certainly_new:
            self._rate_limiter.check(credential, certainly_new)
        await self._backlog.enter(credential, tasks, is_known)
        entry = Entry()
        try:
            yield entry
        finally:
            self._backlog.leave(credential, tasks, entry.stored)
