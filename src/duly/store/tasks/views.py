"""Tasks as their tenant sees them: what the API answers from.

Every read is filtered by the tenant of the caller's credential, here and not by the
caller: ids can be guessed, and another tenant's task is no task at all. A list is
picked as ids first, by whichever index finds them, and then read like single tasks.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from duly.model.graph import MAX_UPSTREAMS, Dependency
from duly.model.queue import Queue
from duly.model.resources import Resources
from duly.model.shape import Concurrency
from duly.model.task import FINAL, OnLost, Outcome, Payload, Reason, Status, Unique, Usage
from duly.model.tenant import Plan
from duly.store.database import Connection, load_statements
from duly.store.plans import plan_of

SQL = load_statements("views.sql")
LARGEST_ID = 2**63 - 1
WHOLE_PAYLOAD = 2**31 - 1
LISTED_PAYLOAD = 4096
"""Bytes up to which a list shows what a task runs; a single task shows all of it."""
LISTED_DEPENDENCIES = 100
"""How many tasks a list names that a task depends on; a single task names all of them."""


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task, what it asked for, and where it is."""

    id: int
    name: str | None
    status: Status
    user: str | None
    admitted_by: str | None
    node: str | None
    enforcement: dict[str, str] | None
    """How limits are enforced on that node."""
    payload: Payload | None
    tier: str | None
    needs: Resources
    requires: dict[str, str]
    concurrency: Concurrency | None
    queue: Queue | None
    slack: timedelta | None
    """How long it is until start_by, if it waits."""
    labels: dict[str, str]
    delay_tolerance: timedelta
    execution_cap: timedelta
    max_attempts: int
    on_lost: OnLost
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
    """How far a running attempt said that it had come, and when."""

    fraction: float
    text: str | None
    at: datetime


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One try at running a task; without an outcome while it runs."""

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
    """How far the log of an attempt goes: all that is known once it has ended."""

    is_live: bool
    latest: int
    attempt: int
    is_running: bool
    size: int
    tail: bytes
    is_lost: bool
    """Whether its node was lost, so that nobody told how its log ends."""


class TaskResult(msgspec.Struct, frozen=True):
    """Where a task is, and the JSON text that it left."""

    status: Status
    result: str | None


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks are meant; all that is given must hold. No status means every status."""

    statuses: frozenset[Status] = frozenset()
    name: str | None = None
    labels: dict[str, str] = {}
    user: str | None = None
    node: str | None = None
    since: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Say whether every task is meant."""
        return self == TaskFilter()


class OtherTenant(msgspec.Struct, frozen=True):
    """A tenant that an administrator acts for."""

    id: int
    name: str
    plan: Plan


async def pick(
    conn: Connection, tenant_id: int, which: TaskFilter, *, before: int, limit: int
) -> list[int]:
    """Return the newest ids below `before` of the tasks that are meant."""
    labels = which.labels or None
    plain = (tenant_id, labels, which.user, which.since, before, limit)
    if which.statuses or which.node is not None:
        asked = which.statuses or frozenset(Status)
        rows = await conn.fetch(
            SQL["pick_by_status"],
            *plain,
            which.name,
            which.node,
            sorted(asked - FINAL),
            Status.FAILED in asked,
            Status.CANCELLED in asked,
            Status.DONE in asked,
        )
    elif which.name is not None:
        rows = await conn.fetch(SQL["pick_named"], *plain, which.name)
    else:
        rows = await conn.fetch(SQL["pick_newest"], *plain)
    return [row["id"] for row in rows]


async def read(conn: Connection, tenant_id: int, task_id: int) -> TaskView | None:
    """Return one task with all of its payload; None when the tenant has no such task."""
    rows = await conn.fetch(SQL["read_tasks"], tenant_id, [task_id], WHOLE_PAYLOAD, MAX_UPSTREAMS)
    return _task(rows[0]) if rows else None


async def read_many(
    conn: Connection,
    tenant_id: int,
    ids: Sequence[int],
    statuses: Collection[Status] = (),
) -> list[TaskView]:
    """Return tasks, newest first, without large payloads or long lists.

    Those that have left `statuses` since their ids were picked are left out.
    """
    rows = await conn.fetch(
        SQL["read_tasks"], tenant_id, list(ids), LISTED_PAYLOAD, LISTED_DEPENDENCIES
    )
    views = [_task(row) for row in rows]
    return [view for view in views if not statuses or view.status in statuses]


async def is_live(conn: Connection, tenant_id: int, task_id: int) -> bool:
    """Say whether a task of the tenant has not ended yet."""
    return bool(await conn.fetchval(SQL["is_live"], tenant_id, task_id))


async def read_attempts(conn: Connection, tenant_id: int, task_id: int) -> list[AttemptView]:
    """Return every attempt at a task, the first one first."""
    rows = await conn.fetch(SQL["read_attempts"], tenant_id, task_id)
    return [_attempt(row) for row in rows]


async def read_log_end(
    conn: Connection, tenant_id: int, task_id: int, attempt: int | None
) -> LogEnd | None:
    """Say how far the log of an attempt goes; None when the tenant has no such task."""
    row = await conn.fetchrow(SQL["read_log_end"], tenant_id, task_id, attempt)
    return None if row is None else LogEnd(**dict(row))


async def read_result(conn: Connection, tenant_id: int, task_id: int) -> TaskResult | None:
    """Return what a task left behind; None when the tenant has no such task."""
    row = await conn.fetchrow(SQL["read_result"], tenant_id, task_id)
    return None if row is None else TaskResult(Status(row["status"]), row["result"])


async def count_ahead(conn: Connection, tenant_id: int, task_id: int, *, limit: int) -> int:
    """Count the tasks of its kind that go before a waiting task, up to `limit`."""
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
    """Return the newest ids below `before` among the dead letters."""
    rows = await conn.fetch(SQL["pick_dead_letters"], tenant_id, code, since, before, limit)
    return [row["task_id"] for row in rows]


async def is_dead_letter(conn: Connection, tenant_id: int, task_id: int) -> bool:
    """Say whether a task is among the tenant's dead letters."""
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
    fields["queue"] = None if fields["queue"] is None else Queue(fields["queue"])
    fields["depends_on"] = msgspec.convert(fields["depends_on"] or [], list[Dependency])
    fields["unique"] = msgspec.convert(fields["unique"], Unique | None)
    fields["progress"] = msgspec.convert(fields["progress"], ProgressView | None)
    fields["reason"] = _reason(fields["reason"])
    fields["status"] = Status(fields["status"])
    fields["on_lost"] = OnLost(fields["on_lost"])
    fields["outcome"] = _outcome(fields["outcome"])
    return TaskView(**fields)


def _attempt(row: asyncpg.Record) -> AttemptView:
    fields = dict(row)
    fields["usage"] = _usage(fields)
    fields["reason"] = _reason(fields["reason"])
    fields["outcome"] = _outcome(fields["outcome"])
    return AttemptView(**fields)


def _usage(fields: dict[str, Any]) -> Usage | None:
    measured = [fields.pop(name) for name in ("cpu_seconds", "peak_memory_mb", "wall_seconds")]
    if None in measured:
        return None
    # PostgreSQL keeps them as four-byte floats: three digits are all that was measured.
    return Usage(*(round(value, 3) for value in measured))


def _reason(value: Any) -> Reason | None:
    return None if value is None else msgspec.convert(value, Reason)


def _outcome(value: str | None) -> Outcome | None:
    return None if value is None else Outcome(value)
