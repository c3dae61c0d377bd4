"""Marks: ends of tasks that were decided outside of the cluster."""

import msgspec

from duly.model.task import Reason, Status
from duly.store.database import Connection, load_statements

SQL = load_statements("marks.sql")


class Marked(msgspec.Struct, frozen=True):
    """A task that has ended by a mark; `incarnation_id` is None if it was not running."""

    incarnation_id: int | None


class End(msgspec.Struct, frozen=True):
    """How a task has ended, and whether by a mark."""

    status: Status
    is_marked: bool


async def mark(
    conn: Connection,
    tenant_id: int,
    task_id: int,
    *,
    status: Status,
    reason: Reason,
    result: str | None,
) -> Marked | None:
    """End a live task, together with the attempt that runs; None if it is not live."""
    told = msgspec.json.encode(reason).decode()
    row = await conn.fetchrow(SQL["mark"], tenant_id, task_id, status.value, told, result)
    return None if row is None else Marked(row["incarnation_id"])


async def read_end(conn: Connection, tenant_id: int, task_id: int) -> End | None:
    """Return how a task has ended; None if it has not, or is unknown."""
    row = await conn.fetchrow(SQL["read_end"], tenant_id, task_id)
    return None if row is None else End(Status(row["status"]), row["is_marked"])
