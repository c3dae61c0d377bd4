"""Operations on all tasks of a graph (cancel, pause, resume), and their progress.

An operation is stored in one commit and carried out in batches. Each batch locks the operation's
row first, so that two servers do not work on the same batch.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from duly.model.queues.pause import Pause, PauseCause
from duly.model.task import Status
from duly.store.database import Connection, load_statements

SQL = load_statements("graph_operations.sql")


class OperationKind(StrEnum):
    """The kinds of operations on a graph."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"


class GraphOperation(msgspec.Struct, frozen=True):
    """A pending operation on a graph."""

    tenant_id: int
    graph_id: int
    id: int
    kind: OperationKind


class Resumed(msgspec.Struct, frozen=True):
    """A resumed task in its new status."""

    id: int
    shape_id: int
    status: Status
    start_by: datetime


async def begin(conn: Connection, operation: GraphOperation) -> bool:
    """Store an operation; False if there is no such graph, or it is being cancelled."""
    return bool(
        await conn.fetchval(
            SQL["begin_operation"],
            operation.tenant_id,
            operation.graph_id,
            operation.id,
            operation.kind.value,
        )
    )


async def read_kind(conn: Connection, tenant_id: int, graph_id: int) -> OperationKind | None:
    """Return the kind of a graph's pending operation, if any."""
    kind = await conn.fetchval(SQL["read_operation"], tenant_id, graph_id)
    return None if kind is None else OperationKind(kind)


async def lock_batch(
    conn: Connection, operation: GraphOperation, *, limit: int
) -> tuple[list[int], int] | None:
    """Lock an operation; return the tasks of its next batch, and how many remain after it.

    None if it is done or was replaced by another operation.
    """
    row = await conn.fetchrow(
        SQL["lock_batch"], operation.tenant_id, operation.graph_id, operation.id, limit
    )
    if row is None:
        return None
    ids = row["ids"] or []
    return ids, row["to_go"] - len(ids) if ids else 0


async def advance(conn: Connection, operation: GraphOperation, left: int) -> None:
    """Store how many tasks are left of a locked operation; delete it if none are."""
    if left:
        await conn.execute(SQL["advance_operation"], operation.graph_id, left)
    else:
        await conn.execute(SQL["end_operation"], operation.graph_id)


async def read_abandoned(conn: Connection, since: timedelta) -> GraphOperation | None:
    """Return an operation without progress for this long, if any."""
    row = await conn.fetchrow(SQL["read_abandoned"], since)
    return None if row is None else msgspec.convert(dict(row), GraphOperation)


async def pause(
    conn: Connection, tenant_id: int, ids: Sequence[int], cause: PauseCause
) -> dict[int, bool]:
    """Pause tasks; return the newly paused ones, True for those that still run."""
    rows = await conn.fetch(SQL["pause_tasks"], tenant_id, list(ids))
    paused = {row["id"]: row["runs"] for row in rows}
    if paused:
        details = msgspec.json.encode(cause).decode()
        await conn.execute(SQL["record_pause"], list(paused), details)
    return paused


async def resume(conn: Connection, tenant_id: int, ids: Sequence[int]) -> list[Resumed]:
    """Resume paused tasks, and return them."""
    locked = [row["id"] for row in await conn.fetch(SQL["lock_paused"], tenant_id, list(ids))]
    if not locked:
        return []
    await conn.execute(SQL["count_from_pause"], locked)
    rows = await conn.fetch(SQL["resume_tasks"], tenant_id, locked)
    resumed = [row["id"] for row in rows]
    sooner = await conn.fetch(SQL["keep_latest_start"], tenant_id, resumed)
    changed = {row["id"]: dict(row) for row in sooner}
    return [msgspec.convert({**dict(row), **changed.get(row["id"], {})}, Resumed) for row in rows]


async def read_pause(conn: Connection, tenant_id: int, task_id: int) -> Pause | None:
    """Return when and why a task was paused, if that is still stored."""
    row = await conn.fetchrow(SQL["read_pause"], tenant_id, task_id)
    if row is None:
        return None
    return Pause(row["at"], msgspec.convert(row["details"], PauseCause))
