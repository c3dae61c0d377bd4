"""Polls the API for the open pages of one session.

Pages read the feed, and the feed polls the API: however many tabs are open, the server gets one
set of requests every two seconds for each tenant that is filtered by, and none without an open tab.
If the server does not respond, the last snapshot stays, together with the problem. Nothing is
requested that the session's key may not see.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from duly import clock
from duly.client.aio import AsyncClient
from duly.client.shapes.account_shapes import Tenant
from duly.client.shapes.fleet_shapes import Node
from duly.client.shapes.task_shapes import FINAL_STATUSES, Task, TaskFilter
from duly.dashboard import view
from duly.dashboard.login.visitor import Visitor
from duly.dashboard.view import Snapshot, TenantOption
from duly.errors import DulyError, Unauthenticated

MAX_TASKS = 50
LOG_TAIL_BYTES = 8192
"""How much of the end of a log a task's details show."""
TENANTS_INTERVAL = timedelta(seconds=30)
"""How often the list of tenants is read, which changes seldom and may be long."""
TENANTS_PER_REQUEST = 1000


class Feed:
    """The newest snapshot of the server, shared by all pages of a session."""

    def __init__(self, client: AsyncClient, interval: timedelta, visitor: Visitor) -> None:
        self.is_refused = False
        """Whether the server has rejected the session's key."""
        self._client = client
        self._visitor = visitor
        # A little less than the pages' own interval, so that each refresh gets a new snapshot.
        self._max_age = interval.total_seconds() * 0.8
        self._timeout = 10.0
        self._lock = asyncio.Lock()
        self._latest: dict[str | None, tuple[float, Snapshot]] = {}
        """The newest snapshot of each tenant that is filtered by, and when it was taken."""
        self._tenants: tuple[TenantOption, ...] = ()
        self._tenants_read_at = float("-inf")
        self._final_details: tuple[Task | None, str] = (None, "")
        """The last finished task whose details were read, and its log, which is not read twice."""

    async def latest(self, tenant: str | None = None) -> Snapshot:
        """Return a snapshot that is at most about one interval old.

        An administrator may filter by `tenant`; otherwise it covers all that the key may see.
        """
        async with self._lock:
            taken_at, latest = self._latest.get(tenant, (float("-inf"), Snapshot()))
            if clock.monotonic() - taken_at >= self._max_age:
                latest = await self._poll(tenant, latest)
                self._forget_unused()
                self._latest[tenant] = clock.monotonic(), latest
            return latest

    def _forget_unused(self) -> None:
        """Drop the snapshots of tenants that no page has filtered by for a while."""
        oldest = clock.monotonic() - TENANTS_INTERVAL.total_seconds()
        self._latest = {key: kept for key, kept in self._latest.items() if kept[0] >= oldest}

    async def details(self, task: str) -> tuple[Task, str]:
        """Return a task and the end of its log; raises DulyError if a request fails."""
        async with asyncio.timeout(self._timeout):
            fields = await self._client.get_task(task)
            if fields == self._final_details[0]:
                return fields, self._final_details[1]
            log = await self._client.read_logs(task) if fields["attempt"] else b""
        tail = log[-LOG_TAIL_BYTES:].decode(errors="replace")
        if fields["status"] in FINAL_STATUSES:
            self._final_details = (fields, tail)
        return fields, tail

    async def _poll(self, tenant: str | None, latest: Snapshot) -> Snapshot:
        if not self._visitor.may("read"):
            return Snapshot()
        only: TaskFilter = {} if tenant is None else {"tenant": tenant}
        try:
            async with asyncio.timeout(self._timeout):
                tenants = await self._read_tenants()
                status = await self._client.status(tenant=tenant)
                tasks = await self._client.list_tasks(limit=MAX_TASKS, **only)
                nodes, is_suspended = await self._nodes(), await self._is_suspended()
        except (DulyError, OSError, TimeoutError) as error:
            self.is_refused |= isinstance(error, Unauthenticated)
            return msgspec.structs.replace(latest, problem=problem(error), tenants=self._tenants)
        return view.snapshot(
            status, nodes, tasks["items"], is_suspended=is_suspended, tenants=tenants
        )

    async def _read_tenants(self) -> tuple[TenantOption, ...]:
        """Return the tenants that an administrator can choose from."""
        is_old = clock.monotonic() - self._tenants_read_at >= TENANTS_INTERVAL.total_seconds()
        if self._visitor.may("admin") and is_old:
            tenants: list[Tenant] = []
            cursor: str | None = None
            while True:
                page = await self._client.list_tenants(limit=TENANTS_PER_REQUEST, cursor=cursor)
                tenants += page["items"]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            self._tenants = view.tenant_options(tenants)
            self._tenants_read_at = clock.monotonic()
        return self._tenants

    async def _nodes(self) -> Sequence[Node]:
        return (await self._client.list_nodes())["items"] if self._visitor.may("admin") else []

    async def _is_suspended(self) -> bool:
        tenant = self._visitor.tenant
        if tenant is None:
            return False
        return (await self._client.get_tenant(tenant))["status"] == "suspended"


def problem(error: Exception) -> str:
    """Describe an error in one sentence, without the details that it may carry."""
    if isinstance(error, DulyError):
        return view.visible(error.message)
    return "The server does not answer."
