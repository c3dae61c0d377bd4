"""Reads tasks for the API.

Every read is filtered by the tenant of the caller's credential, here and not in the API: ids can
be guessed, and another tenant's task must look as if it did not exist. A list is selected as ids
first, by the index that fits the filter, and then read like single tasks.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from duly.model.graph import MAX_UPSTREAMS, Dependency
from duly.model.resources import Resources
from duly.model.shape import Concurrency
from duly.model.task import FINAL_STATUSES, OnLost, Outcome, Payload, Reason, Status, Unique, Usage
from duly.model.tenant import Plan
from duly.store.accounts.plans import plan_of
from duly.store.database import Connection, load_statements

SQL = load_statements("views.sql")
MAX_ID = 2**63 - 1
MAX_ATTEMPT = 2**31 - 1
NO_PAYLOAD_LIMIT = 2**31 - 1
MAX_LISTED_PAYLOAD_BYTES = 4096
"""Larger payloads are left out of lists; a single task shows all of its payload."""
MAX_LISTED_DEPENDENCIES = 100
"""Dependencies shown per task in a list; a single task shows all of them."""


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its specification and status."""

    id: int
    name: str | None
    tenant: str
    tenant_id: int
    status: Status
    user: str | None
    admitted_by: str | None
    node: str | None
    enforcement: dict[str, str] | None
    """How resource limits are enforced on that node."""
    payload: Payload | None
    tier: str | None
    needs: Resources
    requires: dict[str, str]
    concurrency: Concurrency | None
    sharing_user_id: int | None
    """Its user, if the users of its tenant divide the tenant's fair share."""
    queue: str | None
    uses: list[str]
    """The keys of the downstreams that it calls."""
    function: str | None
    """The function of its call."""
    stages: list[str] | None
    """The names of the stages that its attempts have recorded."""
    parent_id: int | None
    """The task whose attempt submitted it."""
    slack: timedelta | None
    """The time until start_by, if it waits."""
    labels: dict[str, str]
    delay_tolerance: timedelta
    execution_cap: timedelta
    expected_run_time: float | None
    """In seconds: as it was when the task was stored, or of its name now."""
    max_attempts: int
    on_lost: OnLost
    is_overdue: bool
    """Whether it has been found to wait, or to have waited, past its delay tolerance."""
    priority: int
    run_at: datetime | None
    idempotency_key: str | None
    replay_of: int | None
    unique: Unique | None
    graph_id: int | None
    ref: str | None
    depends_on: list[Dependency]
    blocked_by: int
    submitted_at: datetime
    ready_at: datetime
    start_by: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    is_paused: bool
    attempt: int
    failures: int
    losses: int
    outcome: Outcome | None
    exit_code: int | None
    reason: Reason | None
    usage: Usage | None
    progress: "ProgressView | None"
    schedule_id: int | None
    fire_at: datetime | None
    scheduling_type: str | None


class ProgressView(msgspec.Struct, frozen=True):
    """The last progress report of a running attempt."""

    fraction: float
    text: str | None
    at: datetime


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a task; its outcome is None while it runs."""

    attempt: int
    node: str | None
    outcome: Outcome | None
    exit_code: int | None
    reason: Reason | None
    leased_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    usage: Usage | None


class LogEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The size of an attempt's log, and its tail once the attempt has ended."""

    is_live: bool
    latest: int
    attempt: int
    is_running: bool
    size: int
    tail: bytes
    is_lost: bool
    """Whether its node was lost, so that the end of its log is unknown."""

    @property
    def needs_store(self) -> bool:
        """Return True if the log, or a part of it, is in the object store alone."""
        return self.attempt > 0 and (self.is_running or self.is_lost or self.size > len(self.tail))


class TaskResult(msgspec.Struct, frozen=True):
    """A task's status, why it has that, and its result as JSON text."""

    status: Status
    reason: Reason | None
    result: str | None


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects tasks; all given conditions must hold. No status means any status."""

    statuses: frozenset[Status] = frozenset()
    name: str | None = None
    matches_refs: bool = False
    """Whether `name` also selects tasks by their ref: to read them, never to change them."""
    labels: dict[str, str] = {}
    user: str | None = None
    node: str | None = None
    since: datetime | None = None
    overdue: bool = False
    """Whether to select only tasks that have waited past their delay tolerance."""

    @property
    def is_empty(self) -> bool:
        """Return True if the filter selects every task."""
        return self == TaskFilter()


class OtherTenant(msgspec.Struct, frozen=True):
    """A tenant that an administrator acts for."""

    id: int
    name: str
    plan: Plan


async def pick(
    conn: Connection, tenant_id: int, which: TaskFilter, *, before: int, limit: int
) -> list[int]:
    """Return the ids of the newest matching tasks below the id `before`."""
    labels = which.labels or None
    common = (tenant_id, labels, which.user, which.since, before, limit)
    if which.statuses or which.node is not None:
        statuses = which.statuses or frozenset(Status)
        rows = await conn.fetch(
            SQL["pick_by_status"],
            *common,
            which.name,
            which.node,
            sorted(statuses - FINAL_STATUSES),
            Status.FAILED in statuses,
            Status.CANCELLED in statuses,
            Status.DONE in statuses,
            which.matches_refs,
            which.overdue,
        )
    elif which.name is not None:
        rows = await conn.fetch(SQL["pick_named"], *common, which.name, which.matches_refs)
    else:
        rows = await conn.fetch(SQL["pick_newest"], *common)
    return [row["id"] for row in rows]


async def read(conn: Connection, tenant_id: int, task_id: int) -> TaskView | None:
    """Return one task with its whole payload; None if the tenant has no such task."""
    rows = await conn.fetch(
        SQL["read_tasks"], tenant_id, [task_id], NO_PAYLOAD_LIMIT, MAX_UPSTREAMS
    )
    return _task(rows[0]) if rows else None


async def read_many(
    conn: Connection,
    tenant_id: int | None,
    ids: Sequence[int],
    statuses: Collection[Status] = (),
) -> list[TaskView]:
    """Return tasks, newest first, without large payloads or long lists.

    Without a tenant, tasks of all tenants are returned, if the connection may read them.
    Tasks that have left `statuses` since their ids were selected are dropped.
    """
    rows = await conn.fetch(
        SQL["read_tasks"], tenant_id, list(ids), MAX_LISTED_PAYLOAD_BYTES, MAX_LISTED_DEPENDENCIES
    )
    views = [_task(row) for row in rows]
    return [view for view in views if not statuses or view.status in statuses]


async def is_live(conn: Connection, tenant_id: int, task_id: int) -> bool:
    """Return True if the tenant has such a task and it has not ended."""
    return bool(await conn.fetchval(SQL["is_live"], tenant_id, task_id))


async def select_live(conn: Connection, tenant_id: int, task_ids: Sequence[int]) -> set[int]:
    """Return those of the tenant's tasks that have not ended."""
    rows = await conn.fetch(SQL["select_live"], tenant_id, list(task_ids))
    return {row["id"] for row in rows}


async def read_attempts(
    conn: Connection, tenant_id: int, task_id: int, *, after: int = 0, limit: int = MAX_ATTEMPT
) -> list[AttemptView]:
    """Return the attempts at a task above a number, oldest first."""
    rows = await conn.fetch(
        SQL["read_attempts"], tenant_id, task_id, min(after, MAX_ATTEMPT), limit
    )
    return [AttemptView(**attempt_fields(row)) for row in rows]


async def read_log_end(
    conn: Connection, tenant_id: int, task_id: int, attempt: int | None
) -> LogEnd | None:
    """Return the extent of an attempt's log; None if the tenant has no such task."""
    row = await conn.fetchrow(SQL["read_log_end"], tenant_id, task_id, attempt)
    return None if row is None else LogEnd(**dict(row))


async def read_result(conn: Connection, tenant_id: int, task_id: int) -> TaskResult | None:
    """Return a task's result; None if the tenant has no such task."""
    row = await conn.fetchrow(SQL["read_result"], tenant_id, task_id)
    if row is None:
        return None
    return TaskResult(Status(row["status"]), _reason(row["reason"]), row["result"])


async def count_ahead(conn: Connection, tenant_id: int, task_id: int, *, limit: int) -> int:
    """Count the tasks ranked before a waiting task in its subqueue, up to `limit`."""
    ahead: int = await conn.fetchval(SQL["count_ahead"], tenant_id, task_id, limit)
    return ahead


async def pick_dead_letters(
    conn: Connection,
    tenant_id: int,
    *,
    code: str | None,
    since: datetime | None,
    before: int,
    limit: int,
) -> list[int]:
    """Return the ids of the newest dead letters below the id `before`."""
    rows = await conn.fetch(SQL["pick_dead_letters"], tenant_id, code, since, before, limit)
    return [row["task_id"] for row in rows]


async def is_dead_letter(conn: Connection, tenant_id: int, task_id: int) -> bool:
    """Return True if a task is one of the tenant's dead letters."""
    return bool(await conn.fetchval(SQL["is_dead_letter"], tenant_id, task_id))


async def tenant_by_name(conn: Connection, name: str) -> OtherTenant | None:
    """Return a tenant by its name."""
    row = await conn.fetchrow(SQL["tenant_by_name"], name)
    if row is None:
        return None
    return OtherTenant(row["tenant_id"], row["tenant"], plan_of(row))


def _task(row: asyncpg.Record) -> TaskView:
    fields = dict(row)
    fields["usage"] = _usage(fields)
    fields["needs"] = msgspec.convert(fields["needs"], Resources)
    fields["payload"] = msgspec.convert(fields["payload"], Payload | None)
    fields["concurrency"] = msgspec.convert(fields["concurrency"], Concurrency | None)
    fields["depends_on"] = msgspec.convert(fields["depends_on"] or [], list[Dependency])
    fields["unique"] = msgspec.convert(fields["unique"], Unique | None)
    fields["progress"] = msgspec.convert(fields["progress"], ProgressView | None)
    fields["reason"] = _reason(fields["reason"])
    fields["status"] = Status(fields["status"])
    fields["on_lost"] = OnLost(fields["on_lost"])
    fields["outcome"] = _outcome(fields["outcome"])
    return TaskView(**fields)


def attempt_fields(row: asyncpg.Record) -> dict[str, Any]:
    """Return the fields of an AttemptView, and whatever else the row of an attempt has."""
    fields = dict(row)
    fields["usage"] = _usage(fields)
    fields["reason"] = _reason(fields["reason"])
    fields["outcome"] = _outcome(fields["outcome"])
    return fields


def _usage(fields: dict[str, Any]) -> Usage | None:
    cpu, peak, wall = (
        fields.pop(name) for name in ("cpu_seconds", "peak_memory_mb", "wall_seconds")
    )
    if cpu is None or wall is None:
        return None
    # Stored as four-byte floats; only three digits were measured.
    return Usage(round(cpu, 3), None if peak is None else round(peak, 3), round(wall, 3))


def _reason(value: Any) -> Reason | None:
    return None if value is None else msgspec.convert(value, Reason)


def _outcome(value: str | None) -> Outcome | None:
    return None if value is None else Outcome(value)
