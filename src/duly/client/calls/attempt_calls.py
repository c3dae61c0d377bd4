"""The calls about attempts, and their methods for both clients."""

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar, Unpack

from duly.client.call import Call, format_instant
from duly.client.calls.task_calls import (
    PAGE_SIZE,
    _as_sequence,
    _get,
    _page_query,
    _task_path,
    _tenant_query,
)
from duly.client.shapes.attempt_shapes import AttemptFilter, ListedAttempt
from duly.client.shapes.task_shapes import Attempt, Page, Stage, TenantPage

T = TypeVar("T")


def list_attempts(task: str, limit: int | None, cursor: str | None) -> Call[Page[Attempt]]:
    """List a page of the attempts of a task."""
    return _get(_task_path(task, "attempts"), _page_query(limit, cursor))


def list_stages(task: str) -> Call[Page[Stage]]:
    """List the stages that attempts at a task have recorded."""
    return _get(_task_path(task, "stages"), [])


def list_all_attempts(
    filters: AttemptFilter, limit: int | None, cursor: str | None
) -> Call[TenantPage[ListedAttempt]]:
    """List a page of the attempts that match the filters."""
    query = [("outcome", outcome) for outcome in _as_sequence(filters.get("outcome"))]
    named = {"user": filters.get("user"), "name": filters.get("name")}
    query += [(name, value) for name, value in named.items() if value is not None]
    if (since := filters.get("since")) is not None:
        query.append(("since", format_instant(since, "since")))
    tenant = _tenant_query(filters.get("tenant"))
    return _get("/v1/attempts", [*query, *_page_query(limit, cursor), *tenant])


class AttemptMethods:
    """Methods for attempts."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_stages(self, task: str) -> list[Stage]:
        """Return the stages that attempts at a task have recorded, in order."""
        return self._send(list_stages(task))["items"]

    def list_attempts(self, task: str) -> list[Attempt]:
        """Return the attempts of a task, oldest first."""
        attempts: list[Attempt] = []
        cursor: str | None = None
        while True:
            page = self._send(list_attempts(task, PAGE_SIZE, cursor))
            attempts += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return attempts

    def list_all_attempts(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[AttemptFilter],
    ) -> TenantPage[ListedAttempt]:
        """Return a page of the attempts of all tasks that match `filters`, newest lease first.

        A page may be short, or even empty, and still have a `next_cursor`. A key with the scope
        `admin` sees the attempts of all tenants, unless `tenant` names one.
        """
        return self._send(list_all_attempts(filters, limit, cursor))

    def iter_all_attempts(self, **filters: Unpack[AttemptFilter]) -> Iterator[ListedAttempt]:
        """Yield every attempt that matches `filters`, newest lease first, page by page."""
        cursor: str | None = None
        while True:
            page = self.list_all_attempts(limit=PAGE_SIZE, cursor=cursor, **filters)
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return


class AsyncAttemptMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_stages(self, task: str) -> list[Stage]:
        """Return the stages that attempts at a task have recorded, in order."""
        return (await self._send(list_stages(task)))["items"]

    async def list_attempts(self, task: str) -> list[Attempt]:
        """Return the attempts of a task, oldest first."""
        attempts: list[Attempt] = []
        cursor: str | None = None
        while True:
            page = await self._send(list_attempts(task, PAGE_SIZE, cursor))
            attempts += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return attempts

    async def list_all_attempts(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[AttemptFilter],
    ) -> TenantPage[ListedAttempt]:
        """Return a page of the attempts of all tasks that match `filters`, newest lease first.

        A page may be short, or even empty, and still have a `next_cursor`. A key with the scope
        `admin` sees the attempts of all tenants, unless `tenant` names one.
        """
        return await self._send(list_all_attempts(filters, limit, cursor))

    async def iter_all_attempts(
        self, **filters: Unpack[AttemptFilter]
    ) -> AsyncIterator[ListedAttempt]:
        """Yield every attempt that matches `filters`, newest lease first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list_all_attempts(limit=PAGE_SIZE, cursor=cursor, **filters)
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return
