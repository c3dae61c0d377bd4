"""Limits the number of waiting tasks of a tenant to its plan's `max_waiting`.

The backlog is counted from the rows in the database, so no counter can drift. Each server
recounts a tenant at most once a second and adds the tasks that it has admitted since; a tenant can
exceed its limit by the tasks that other servers admit in between, and by its own retries. A backlog
so long that counting is slow is recounted less often: counting takes at most a twentieth of the
time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly import telemetry
from duly.errors import Invalid, LimitExceeded
from duly.model.tenant import Credential, Plan
from duly.model.wording import count_of
from duly.server.duty_cycle import DutyCycle
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.store.tasks import backlog

MIN_RECOUNT_INTERVAL = timedelta(seconds=1)
"""Between two counts of one tenant."""
MAX_CACHED_TENANTS = 10_000
"""Beyond that the oldest count without tasks in flight is evicted."""
RETRY_AFTER = timedelta(seconds=5)


class TenantBacklog:
    """The last count of a tenant's waiting tasks, and those that this server has admitted since."""

    __slots__ = ("admitted", "admitted_at_count", "count_done", "counted", "in_flight", "recount")

    def __init__(self) -> None:
        self.counted = 0
        self.admitted = 0
        """Tasks that this server has stored since it started counting this tenant."""
        self.admitted_at_count = 0
        """The value of `admitted` when the last count began."""
        self.in_flight = 0
        """Tasks that are being stored."""
        self.recount = DutyCycle(MIN_RECOUNT_INTERVAL)
        self.count_done: asyncio.Event | None = None
        """Set at the end of the count that is under way; other submissions wait for it."""

    @property
    def estimate(self) -> int:
        """Return the number of waiting tasks as far as this server knows."""
        return self.counted + self.admitted - self.admitted_at_count + self.in_flight


class BacklogLimit:
    """Admits tasks while their tenant's backlog has room for them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backlogs: dict[int, TenantBacklog] = {}

    async def acquire(
        self, credential: Credential, tasks: int, is_duplicate: Callable[[], Awaitable[bool]]
    ) -> None:
        """Count tasks that are about to be stored as waiting, or raise LimitExceeded.

        `is_duplicate` is called if there is no room, because a duplicate needs none. The caller
        must `release` the tasks, whether they were stored or not.
        """
        limit = credential.plan.max_waiting
        if limit is None:
            return
        tenant = self._backlogs.get(credential.tenant_id)
        if tenant is None:
            self._evict()
            tenant = self._backlogs[credential.tenant_id] = TenantBacklog()
        while tenant.recount.is_due:
            if tenant.count_done is None:
                await self._count(credential.tenant_id, tenant, limit)
            else:
                await tenant.count_done.wait()
        if tenant.estimate + tasks > limit and not await is_duplicate():
            raise backlog_exceeded(credential.plan, tasks)
        tenant.in_flight += tasks

    def release(self, credential: Credential, tasks: int, stored: int) -> None:
        """End the storing of acquired tasks, of which `stored` were stored."""
        tenant = self._backlogs.get(credential.tenant_id)
        if tenant is not None and credential.plan.max_waiting is not None:
            tenant.in_flight -= tasks
            tenant.admitted += stored

    async def _count(self, tenant_id: int, tenant: TenantBacklog, limit: int) -> None:
        tenant.count_done = asyncio.Event()
        try:
            async with self._database.connection(ConnectionClass.CLIENT) as conn:
                # Tasks that are stored during the count may count twice, but are never missed.
                admitted = tenant.admitted
                with tenant.recount.step():
                    counted = await backlog.count_waiting(conn, tenant_id, most=limit + 1)
                    tenant.counted, tenant.admitted_at_count = counted, admitted
        finally:
            tenant.count_done.set()
            tenant.count_done = None

    def _evict(self) -> None:
        if len(self._backlogs) >= MAX_CACHED_TENANTS:
            idle = (key for key, tenant in self._backlogs.items() if not tenant.in_flight)
            self._backlogs.pop(next(idle, 0), None)


def exceeded_message(plan: Plan) -> str:
    """Return the sentence that names the limit."""
    tasks = count_of(plan.max_waiting or 0, "task")
    return f"Limit exceeded: the plan {plan.name!r} lets at most {tasks} wait."


def backlog_exceeded(plan: Plan, tasks: int) -> LimitExceeded | Invalid:
    """Return the error for a submission over the limit, and count the refusal."""
    telemetry.TASKS_REFUSED.labels("max_waiting").inc()
    if plan.max_waiting is not None and tasks > plan.max_waiting:
        return Invalid(
            "tasks",
            f"{tasks} are more than the {plan.max_waiting} that the plan {plan.name!r} lets wait. "
            "Submit them in parts.",
            limit="max_waiting",
            max_waiting=plan.max_waiting,
        )
    return LimitExceeded(
        f"{exceeded_message(plan)} Try again when some have started.",
        RETRY_AFTER,
        limit="max_waiting",
        max_waiting=plan.max_waiting,
    )
