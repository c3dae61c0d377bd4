"""Refuses submissions over a tenant's limits before anything is stored.

Every submission passes it: a task, a batch, a graph, a replay. It decides from this server's
caches, so it is cheap but not exact; the tokens of the rate limit are taken where tasks are stored
(`rate_limiter.py`).
"""

from collections.abc import Awaitable, Callable

from duly.model.tenant import Credential
from duly.server.admission.backlog_limit import BacklogLimit
from duly.server.admission.rate_limiter import RateLimiter


class AdmissionControl:
    """Checks the rate limit and the backlog limit of the tenant that submits."""

    def __init__(self, rate_limiter: RateLimiter, backlog: BacklogLimit) -> None:
        self._rate_limiter = rate_limiter
        self._backlog = backlog

    def admit(
        self,
        credential: Credential,
        tasks: int,
        is_duplicate: Callable[[], Awaitable[bool]],
        *,
        certainly_new: int,
    ) -> "AdmissionPermit":
        """Return a permit to store tasks, to be held while storing them; raises LimitExceeded.

        Duplicates are free: only tasks that are `certainly_new` are checked against the rate, and
        `is_duplicate` is called before the backlog limit refuses a submission.
        """
        if certainly_new:
            self._rate_limiter.check(credential, certainly_new)
        return AdmissionPermit(self._backlog, credential, tasks, is_duplicate)


class AdmissionPermit:
    """Counts tasks against the backlog limit while they are being stored."""

    def __init__(
        self,
        backlog: BacklogLimit,
        credential: Credential,
        tasks: int,
        is_duplicate: Callable[[], Awaitable[bool]],
    ) -> None:
        self._backlog = backlog
        self._credential = credential
        self._tasks = tasks
        self._is_duplicate = is_duplicate
        self.stored = 0
        """How many of the tasks were stored; set by the holder of the permit."""

    async def __aenter__(self) -> "AdmissionPermit":
        await self._backlog.acquire(self._credential, self._tasks, self._is_duplicate)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._backlog.release(self._credential, self._tasks, self.stored)
