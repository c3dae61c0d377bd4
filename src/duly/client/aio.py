"""The client for asyncio; it has the same methods as `duly.client.sync`, with `await`."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from duly import clock
from duly.client.account_methods import AsyncAccountMethods
from duly.client.async_transport import AsyncConnectionPool
from duly.client.call import Call, read_response
from duly.client.call_attempts import CallAttempts, Servers
from duly.client.calls import task_calls
from duly.client.calls.artifact_calls import AsyncArtifactMethods
from duly.client.calls.attempt_calls import AsyncAttemptMethods
from duly.client.calls.downstream_calls import AsyncDownstreamMethods
from duly.client.calls.graph_calls import AsyncGraphMethods
from duly.client.calls.mark_calls import AsyncMarkMethods
from duly.client.calls.pause_calls import AsyncPauseMethods
from duly.client.calls.plan_calls import AsyncPlanMethods
from duly.client.calls.queue_calls import AsyncQueueMethods
from duly.client.calls.schedule_calls import AsyncScheduleMethods
from duly.client.calls.submission_calls import AsyncSubmissionMethods
from duly.client.endpoint import find_endpoint, parse_endpoint
from duly.client.retry import NoResponse, Patience
from duly.client.shapes.fleet_shapes import Allocation, Node, NodeToken, Server, Status, TokenUses
from duly.client.shapes.task_shapes import (
    FINAL_STATUSES,
    DeadLetter,
    Duration,
    Instant,
    Page,
    Reason,
    ResourceFields,
    Task,
    TaskFields,
    TaskFilter,
    TaskListFilter,
    TenantPage,
)
from duly.client.shapes.usage_shapes import UsageReport
from duly.errors import LimitExceeded, NotFound, Unavailable

T = TypeVar("T")


class AsyncClient(
    AsyncAccountMethods,
    AsyncPlanMethods,
    AsyncQueueMethods,
    AsyncDownstreamMethods,
    AsyncScheduleMethods,
    AsyncGraphMethods,
    AsyncArtifactMethods,
    AsyncPauseMethods,
    AsyncSubmissionMethods,
    AsyncMarkMethods,
    AsyncAttemptMethods,
):
    """A client of the whole REST API for asyncio; `duly.Client` is its blocking twin.

    Without a URL, the server and key come from DULY_URL and DULY_KEY, or from the file that
    `duly up` wrote for this user. Idempotent calls are retried as `patience` allows; submissions
    are among them, because each carries an idempotency key. Close the client, or use it with
    `async with`.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        ca_file: str | Path | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.endpoint = find_endpoint() if url is None else parse_endpoint(url, key, ca_file)
        self.patience = patience or Patience()
        self._servers = Servers(self.endpoint)
        self._pool = AsyncConnectionPool(self.endpoint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def server_url(self) -> str:
        """The URL of the server in use: the one that answered last, unless it failed since."""
        return self._servers.current

    async def close(self) -> None:
        """Close the idle connections; later calls open new ones."""
        await self._pool.close()

    async def submit(self, **task: Unpack[TaskFields]) -> Task:
        """Submit a task: `client.submit(command=["echo", "hi"], tier="basic")`."""
        return await self._send(task_calls.submit(task))

    async def submit_many(
        self, tasks: Iterable[TaskFields], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submit `tasks` atomically, all or none, and return their ids in the same order."""
        return await self._send(task_calls.submit_many(tasks, idempotency_key))

    async def list_tasks(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[TaskListFilter],
    ) -> TenantPage[Task]:
        """Return a page of the tasks that match `filters`, newest first.

        A key with the scope `admin` sees the tasks of all tenants, unless `tenant` names one.
        """
        return await self._send(task_calls.list_tasks(filters, limit, cursor))

    async def iter_tasks(self, **filters: Unpack[TaskListFilter]) -> AsyncIterator[Task]:
        """Yield every task that matches `filters`, newest first, fetching page by page."""
        cursor: str | None = None
        while True:
            page = await self.list_tasks(limit=task_calls.PAGE_SIZE, cursor=cursor, **filters)
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def get_task(self, task: str) -> Task:
        """Return a task; raises NotFound."""
        return await self._send(task_calls.get_task(task))

    async def wait(self, task: str, timeout: float | None = None) -> Task:
        """Wait until a task is done, failed or cancelled, and return it.

        Raises TimeoutError after `timeout` seconds; None waits without limit.
        """
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            wait_seconds = (
                task_calls.MAX_LONG_POLL_SECONDS
                if until is None
                else max(until - clock.monotonic(), 0.0)
            )
            current = await self._send(task_calls.get_task(task, wait=wait_seconds))
            if current["status"] in FINAL_STATUSES:
                return current
            if until is not None and clock.monotonic() >= until:
                raise task_calls.wait_timed_out(current, timeout)

    async def wait_for_any(self, tasks: Sequence[str], timeout: float) -> list[str]:
        """Return those of the tasks that have ended, as soon as there is one.

        The list is empty after `timeout` seconds, and after 25 in any case. One call takes up to
        10,000 tasks. A task that does not exist any more, or never did, has ended.
        """
        return await self._send(task_calls.wait_for_any(tasks, timeout))

    async def update_task(self, task: str, **fields: Unpack[TaskFields]) -> Task:
        """Change a task that has not started yet."""
        return await self._send(task_calls.update_task(task, fields))

    async def cancel_task(self, task: str) -> Task:
        """Cancel a task; a running one becomes `cancelled` once its processes have exited."""
        return await self._send(task_calls.cancel_task(task))

    async def cancel_tasks(self, **filters: Unpack[TaskFilter]) -> int:
        """Cancel every task that matches `filters`, and return how many."""
        count = 0
        while True:
            response = await self._send(task_calls.cancel_tasks(filters))
            count += response["cancelled"]
            if not response.get("more"):
                return count

    async def replay_task(self, task: str, *, downstream: bool = False) -> Task:
        """Submit an ended task again as a new task, and return the new one.

        `downstream=True` also replays the tasks that depend on it.
        """
        return await self._send(task_calls.replay_task(task, downstream=downstream))

    async def explain(self, task: str) -> Reason:
        """Return why a task has its current status."""
        return await self._send(task_calls.explain(task))

    async def get_result(self, task: str) -> Any:
        """Return a task's result, decoded from JSON; None if it left none."""
        return await self._send(task_calls.get_result(task))

    async def read_logs(self, task: str, attempt: int | None = None) -> bytes:
        """Return the log of an attempt so far, by default of the latest."""
        return await self._send(task_calls.read_logs(task, attempt))

    async def follow_logs(self, task: str, attempt: int | None = None) -> AsyncIterator[bytes]:
        """Yield a task's log as it grows, until the task has ended.

        Starts with the latest attempt and continues with its retries; with `attempt`, yields only
        that attempt's log. A broken connection is resumed at the same offset.
        """
        current_attempt = attempt
        while True:
            if current_attempt is None:
                current_attempt = max((await self.get_task(task))["attempt"], 1)
            try:
                async for chunk in self._follow(task, current_attempt):
                    yield chunk
            except NotFound:
                if attempt is not None:
                    raise  # otherwise the task ended without another attempt; checked below
            if attempt is not None:
                return
            current = await self.get_task(task)
            if current["attempt"] <= current_attempt and current["status"] in FINAL_STATUSES:
                return
            current_attempt += 1

    async def list_dead_letters(
        self,
        *,
        reason: str | None = None,
        since: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Task]:
        """Return a page of dead letters: tasks that failed with no attempts left."""
        return await self._send(task_calls.list_dead_letters(reason, since, limit, cursor))

    async def iter_dead_letters(
        self, *, reason: str | None = None, since: Instant | None = None
    ) -> AsyncIterator[Task]:
        """Yield every dead letter, fetching page by page."""
        cursor: str | None = None
        while True:
            page = await self.list_dead_letters(
                reason=reason, since=since, limit=task_calls.PAGE_SIZE, cursor=cursor
            )
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def get_dead_letter(self, task: str) -> DeadLetter:
        """Return a dead letter with its last attempt and the end of its log."""
        return await self._send(task_calls.get_dead_letter(task))

    async def replay_dead_letter(self, task: str, *, downstream: bool = False) -> Task:
        """Submit a dead letter again as a new task, and return the new task."""
        return await self._send(task_calls.replay_dead_letter(task, downstream=downstream))

    async def drop_dead_letter(self, task: str) -> None:
        """Drop a task from the dead letters; its history is kept."""
        return await self._send(task_calls.drop_dead_letter(task))

    async def list_nodes(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Node]:
        """Return a page of nodes."""
        return await self._send(task_calls.list_nodes(limit, cursor))

    async def list_servers(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Server]:
        """Return a page of the servers with the duties that each leads, by number."""
        return await self._send(task_calls.list_servers(limit, cursor))

    async def get_node(self, node: str) -> Node:
        """Return a node."""
        return await self._send(task_calls.get_node(node))

    async def drain_node(self, node: str) -> Node:
        """Drain a node: it finishes its running tasks and takes no new ones."""
        return await self._send(task_calls.drain_node(node, drain=True))

    async def undrain_node(self, node: str) -> Node:
        """Make a drained or draining node take tasks again."""
        return await self._send(task_calls.drain_node(node, drain=False))

    async def set_capacity(self, node: str, capacity: ResourceFields | None) -> Node:
        """Override the capacity that a node's agent reports, kind by kind; None undoes it."""
        return await self._send(task_calls.set_capacity(node, capacity))

    async def remove_node(self, node: str) -> None:
        """Remove a node permanently; its running tasks are handed over to other nodes."""
        await self._send(task_calls.remove_node(node))

    async def create_node_token(
        self, expires_in: Duration | None = None, uses: TokenUses | None = None
    ) -> NodeToken:
        """Create a join token for new nodes: by default one node, within an hour."""
        return await self._send(task_calls.create_node_token(expires_in, uses))

    async def list_resources(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        node: str | None = None,
        tenant: str | None = None,
    ) -> TenantPage[Allocation]:
        """Return a page of allocations: running tasks and reservations."""
        return await self._send(task_calls.list_resources(limit, cursor, node, tenant))

    async def reserve(
        self,
        resources: ResourceFields,
        *,
        node: str | None = None,
        expires_in: Duration | None = None,
    ) -> Allocation:
        """Reserve resources on `node`, or on any node where they fit.

        The reservation lasts until it is released or `expires_in` has passed.
        """
        return await self._send(task_calls.reserve(resources, node, expires_in))

    async def update_reservation(
        self,
        reservation: str,
        resources: ResourceFields | None = None,
        *,
        expires_in: Duration | None = None,
    ) -> Allocation:
        """Change the amounts of a reservation, kind by kind, or its expiry counted from now."""
        return await self._send(task_calls.update_reservation(reservation, resources, expires_in))

    async def release(self, reservation: str) -> None:
        """Release a reservation."""
        await self._send(task_calls.release(reservation))

    async def usage(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        by: str | Sequence[str] = (),
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> UsageReport:
        """Return usage and its price for the days from `since` to `until` (dates, inclusive).

        `by` groups it by one or more of day (the default), tenant, user, tier and urgency. The
        total is that of all items, even if `limit` leaves some for the next page.
        """
        return await self._send(task_calls.usage(since, until, by, tenant, limit, cursor))

    async def status(self, *, tenant: str | None = None) -> Status:
        """Return an overview of tasks; with the scope `admin`, of the whole installation."""
        return await self._send(task_calls.status(tenant))

    async def healthz(self) -> bool:
        """Return True if a server responds; raises Unreachable if none does."""
        return await self._send(task_calls.healthz())

    async def _follow(self, task: str, attempt: int) -> AsyncIterator[bytes]:
        """Yield the log of one attempt until it ends; raises NotFound if it never starts."""
        call = task_calls.read_logs(task, attempt, follow=True)
        tries = CallAttempts(call, self._servers, self.patience)
        offset = 0
        while True:
            url = self._servers.current
            try:
                async for chunk in self._pool.stream(url, call, skip=offset):
                    offset += len(chunk)
                    tries = CallAttempts(call, self._servers, self.patience)
                    yield chunk
                return
            except (NoResponse, LimitExceeded, Unavailable) as failure:
                await asyncio.sleep(tries.delay_after_failure(url, failure))

    async def _send(self, call: Call[T]) -> T:
        tries = CallAttempts(call, self._servers, self.patience)
        while True:
            url = self._servers.current
            try:
                return read_response(call, await self._pool.exchange(url, tries.call))
            except (NoResponse, LimitExceeded, Unavailable) as failure:
                await asyncio.sleep(tries.delay_after_failure(url, failure))
