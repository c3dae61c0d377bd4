"""Refuses submissions before anything is stored, by what is known here of a tenant's limits.

Every way to submit goes through it: one task, a batch, a graph, a replay. It costs next to
nothing and is not exact. The rate is charged for certain where tasks are stored
(`rate_limiter.py`).
"""

from collections.abc import Awaitable, Callable

from duly.model.tenant import Credential
from duly.server.backlog import Backlog
from duly.server.rate_limiter import RateLimiter


class AdmissionControl:
    """Asks the rate limiter and the backlog on behalf of whoever submits."""

    def __init__(self, rate_limiter: RateLimiter, backlog: Backlog) -> None:
        self._rate_limiter = rate_limiter
        self._backlog = backlog

    def enter(
        self,
        credential: Credential,
        tasks: int,
        is_known: Callable[[], Awaitable[bool]],
        *,
        certainly_new: int,
    ) -> "Entry":
        """Let tasks in for as long as the block lasts that stores them; raises LimitExceeded.

        What was submitted before is free: the rate is asked for those that are `certainly_new`,
        and `is_known` says whether the others need no room.
        """
        if certainly_new:
            self._rate_limiter.check(credential, certainly_new)
        return Entry(self._backlog, credential, tasks, is_known)


class Entry:
    """A submission that holds its place in the backlog while it is being stored."""

    def __init__(
        self,
        backlog: Backlog,
        credential: Credential,
        tasks: int,
        is_known: Callable[[], Awaitable[bool]],
    ) -> None:
        self._backlog = backlog
        self._credential = credential
        self._tasks = tasks
        self._is_known = is_known
        self.stored = 0
        """How many of its tasks were stored; whoever has entered says so."""

    async def __aenter__(self) -> "Entry":
        await self._backlog.enter(self._credential, self._tasks, self._is_known)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._backlog.leave(self._credential, self._tasks, self.stored)
