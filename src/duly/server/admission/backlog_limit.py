"""Keeps the number of tasks that wait to what a tenant's plan lets wait.

The number is counted in the database, from the rows that are there, so that nothing
can be forgotten in it. Each server counts anew at most once a second, and adds what it
has let in since: a tenant can be over its limit by what other servers let in meanwhile,
and by its own tasks that come back to be tried again. Of a backlog so long that counting
takes its time, it is counted more seldom: at most a twentieth of the time goes into it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly import telemetry
from duly.errors import Invalid, LimitExceeded
from duly.model.tenant import Credential, Plan
from duly.server.pace import Pace
from duly.store import backlog
from duly.store.database import Database
from duly.store.lanes import Lane

LOOK = timedelta(seconds=1)
"""From one count to the next, at least."""
MOST = 10_000
"""How many tenants are remembered at once; beyond that the oldest are forgotten."""
RETRY_AFTER = timedelta(seconds=5)


class Count:
    """How many tasks of a tenant waited, and what this server has let in since then."""

    __slots__ = ("before", "counted", "counting", "let_in", "on_their_way", "pace")

    def __init__(self) -> None:
        self.counted = 0
        self.before = 0
        """How many this server had let in when it began to count."""
        self.let_in = 0
        self.on_their_way = 0
        self.pace = Pace(LOOK)
        self.counting: asyncio.Event | None = None
        """What those wait for who come while somebody counts."""

    @property
    def waiting(self) -> int:
        """Return how many there are, as far as is known here."""
        return self.counted + self.let_in - self.before + self.on_their_way


class Backlog:
    """Lets tasks in while there is room for them in their tenant's backlog."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: dict[int, Count] = {}

    async def enter(
        self, credential: Credential, tasks: int, is_known: Callable[[], Awaitable[bool]]
    ) -> None:
        """Make room for tasks that are about to be stored, or raise LimitExceeded.

        `is_known` is asked when there is none: what was submitted before needs no room. Whoever
        has entered must `leave`, whatever becomes of it.
        """
        limit = credential.plan.max_waiting
        if limit is None:
            return
        count = self._counts.get(credential.tenant_id)
        if count is None:
            self._forget()
            count = self._counts[credential.tenant_id] = Count()
        while count.pace.is_due:
            if count.counting is None:
                await self._count(credential.tenant_id, count, limit)
            else:
                await count.counting.wait()
        if count.waiting + tasks > limit and not await is_known():
            raise refusal(credential.plan, tasks)
        count.on_their_way += tasks

    def leave(self, credential: Credential, tasks: int, stored: int) -> None:
        """Say how many of the tasks that had entered were stored."""
        count = self._counts.get(credential.tenant_id)
        if count is not None and credential.plan.max_waiting is not None:
            count.on_their_way -= tasks
            count.let_in += stored

    async def _count(self, tenant_id: int, count: Count, limit: int) -> None:
        count.counting = asyncio.Event()
        try:
            async with self._database.connection(Lane.GUEST) as conn:
                # What is stored while we count may be counted twice, and never not at all.
                before = count.let_in
                with count.pace.step():
                    counted = await backlog.count_waiting(conn, tenant_id, most=limit + 1)
                    count.counted, count.before = counted, before
        finally:
            count.counting.set()
            count.counting = None

    def _forget(self) -> None:
        if len(self._counts) >= MOST:
            idle = (tenant for tenant, one in self._counts.items() if not one.on_their_way)
            self._counts.pop(next(idle, 0), None)


def say_exceeded(plan: Plan) -> str:
    """Return the sentence that says how many tasks may wait."""
    tasks = "1 task" if plan.max_waiting == 1 else f"{plan.max_waiting} tasks"
    return f"Limit exceeded: at most {tasks} may wait in the plan {plan.name!r}."


def refusal(plan: Plan, tasks: int) -> LimitExceeded | Invalid:
    """Return what a tenant is told that has too many tasks waiting."""
    telemetry.TASKS_REFUSED.labels("max_waiting").inc()
    if plan.max_waiting is not None and tasks > plan.max_waiting:
        return Invalid(
            "tasks",
            f"Limit exceeded: a batch of {tasks} tasks is larger than the {plan.max_waiting} that "
            f"the plan {plan.name!r} lets wait; submit it in parts.",
            limit="max_waiting",
            max_waiting=plan.max_waiting,
        )
    return LimitExceeded(
        f"{say_exceeded(plan)} Try again when some have started.",
        RETRY_AFTER,
        limit="max_waiting",
        max_waiting=plan.max_waiting,
    )
