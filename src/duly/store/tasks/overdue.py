"""Finds, marks and cancels overdue tasks: those that wait and should have started by now."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from duly.model.queues.queue import Queue
from duly.model.task import OnOverdue, Reason
from duly.store.database import Connection, load_statements

SQL = load_statements("overdue.sql")
MAX_TENANT_ID = 2**31 - 1
BEGINNING_OF_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class Cursor(NamedTuple):
    """A task in the order of the index of subqueues."""

    tenant_id: int
    shape_id: int
    start_by: datetime
    priority: int
    remaining_path: int
    expected_run_time: timedelta
    id: int


BEFORE_ALL = Cursor(0, 0, BEGINNING_OF_TIME, 0, 0, timedelta(0), 0)


class OverdueTask(msgspec.Struct, frozen=True):
    """A waiting task that is overdue, and was not marked since it waits."""

    id: int
    tenant_id: int
    shape_id: int
    start_by: datetime
    ready_at: datetime
    delay_tolerance: timedelta
    on_overdue: OnOverdue
    queue: str
    """The queue that it was submitted to."""
    plan: str


class Page(msgspec.Struct, frozen=True):
    """The overdue tasks of a page of waiting tasks, and where the next page begins, if any."""

    tasks: list[OverdueTask]
    next_after: Cursor | None


async def read_page(
    conn: Connection, *, above: datetime, up_to: datetime, after: Cursor, limit: int
) -> Page:
    """Read up to `limit` tasks with a start_by in a range; return those overdue and unmarked."""
    rows = await conn.fetch(SQL["read_page"], above, up_to, *after, limit)
    last = rows[-1] if rows and rows[-1]["is_last"] else None
    return Page(
        [
            OverdueTask(
                row["id"],
                row["tenant_id"],
                row["shape_id"],
                row["start_by"],
                row["ready_at"],
                row["delay_tolerance"],
                OnOverdue(row["on_overdue"] or OnOverdue.WAIT),
                row["queue"] or Queue.DELAYABLE,
                row["plan"],
            )
            for row in rows
            if row["is_new"]
        ],
        None if last is None else Cursor(*(last[name] for name in Cursor._fields)),
    )


async def mark(conn: Connection, tasks: Sequence[OverdueTask]) -> None:
    """Record that tasks are overdue."""
    await conn.execute(
        SQL["mark"],
        [task.id for task in tasks],
        [task.tenant_id for task in tasks],
        [task.ready_at for task in tasks],
    )


async def cancel(conn: Connection, reasons: Mapping[int, Reason]) -> list[int]:
    """Cancel tasks that still wait and are overdue; return those that were cancelled."""
    texts = [msgspec.json.encode(reason).decode() for reason in reasons.values()]
    rows = await conn.fetch(SQL["cancel"], list(reasons), texts)
    return [row["id"] for row in rows]


async def count(conn: Connection, tenant_id: int | None) -> int:
    """Count the overdue tasks of a tenant, or of all, up to 100,000."""
    first, last = (0, MAX_TENANT_ID) if tenant_id is None else (tenant_id, tenant_id)
    overdue: int = await conn.fetchval(SQL["count_overdue"], first, last)
    return overdue


async def read_expected_ends(conn: Connection) -> dict[int, timedelta]:
    """Return after what time the next attempt of each incarnation is expected to end."""
    rows = await conn.fetch(SQL["read_expected_ends"])
    return {row["incarnation_id"]: timedelta(seconds=row["seconds"]) for row in rows}
