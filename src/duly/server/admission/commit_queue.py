"""Queues the submissions that wait for the next group commit, in order of arrival.

A submission whose tenant's bucket was locked by another transaction is requeued, and its tenant
backs off for a few milliseconds: other tenants do not wait for it.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from duly.store.tasks.tasks import NewTask, StoredTask

TENANT_BACKOFF_SECONDS = 0.005
"""About as long as a commit holds the lock of a bucket."""


class Admitted(msgspec.Struct, frozen=True):
    """A task that is stored; `created` is False for a duplicate of an earlier submission."""

    id: int
    created: bool
    stored: StoredTask | None = None


class CommitRequest(msgspec.Struct):
    """A task that waits for its commit, and the future that its submitter awaits."""

    task: NewTask
    result: "asyncio.Future[Admitted]"

    def resolve(self, admitted: Admitted) -> None:
        """Set the result; it is dropped if the client is gone, and the task stays stored."""
        if not self.result.done():
            self.result.set_result(admitted)

    def refuse(self, error: Exception) -> None:
        """Set an error as the result, unless there is a result already."""
        if not self.result.done():
            self.result.set_exception(error)


class CommitQueue:
    """The waiting requests by the id of their task, and the tenants that back off."""

    def __init__(self) -> None:
        self._requests: dict[int, CommitRequest] = {}
        self._backoff_until: dict[int, float] = {}

    def push(self, task: NewTask) -> CommitRequest:
        """Queue a task for the next commit."""
        request = CommitRequest(task, asyncio.get_running_loop().create_future())
        self._requests[task.id] = request
        return request

    def __contains__(self, request: CommitRequest) -> bool:
        return request.task.id in self._requests

    def remove(self, task_id: int) -> bool:
        """Remove a task; return False if it is not queued any more."""
        return self._requests.pop(task_id, None) is not None

    def requeue(
        self, requests: Iterable[CommitRequest], *, backoff: float = TENANT_BACKOFF_SECONDS
    ) -> None:
        """Queue requests again that could not be committed, and make their tenants back off."""
        until = asyncio.get_running_loop().time() + backoff
        for request in requests:
            # A request that has timed out meanwhile is dropped.
            if not request.result.done():
                self._requests[request.task.id] = request
                if backoff:
                    self._backoff_until[request.task.tenant_id] = until

    def pop_group(self, limit: int) -> list[CommitRequest]:
        """Remove and return the next requests, without those of tenants that back off.

        A group has one request per unique key: the next one must find the key held.
        """
        self._end_backoffs()
        group: list[int] = []
        keys: set[tuple[int, str]] = set()
        for task_id, request in self._requests.items():
            task = request.task
            if task.tenant_id in self._backoff_until:
                continue
            if task.spec.unique is not None:
                key = task.tenant_id, task.spec.unique.key
                if key in keys:
                    continue
                keys.add(key)
            group.append(task_id)
            if len(group) == limit:
                break
        return [self._requests.pop(task_id) for task_id in group]

    @property
    def has_ready(self) -> bool:
        """Return True if a request can be committed now."""
        return any(
            request.task.tenant_id not in self._backoff_until for request in self._requests.values()
        )

    @property
    def seconds_to_backoff_end(self) -> float | None:
        """Return the seconds until the first tenant ends its backoff; None without backoffs."""
        if not self._backoff_until:
            return None
        return max(0.0, min(self._backoff_until.values()) - asyncio.get_running_loop().time())

    def _end_backoffs(self) -> None:
        if self._backoff_until:
            now = asyncio.get_running_loop().time()
            self._backoff_until = {
                tenant_id: until for tenant_id, until in self._backoff_until.items() if until > now
            }
