"""Wishes: what is to be done to all tasks of a graph, and how far it has come.

A wish is written down in one commit and carried out in pieces. Each piece locks it first, so
that two who are at it do not get into each other's way.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from duly.model.pause import Cause, Pause
from duly.model.task import Status
from duly.store.database import Connection, load_statements

SQL = load_statements("wishes.sql")


class WishKind(StrEnum):
    """What is wished of a graph."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"


class Wish(msgspec.Struct, frozen=True):
    """What is to be done to a graph."""

    tenant_id: int
    graph_id: int
    id: int
    kind: WishKind


class Resumed(msgspec.Struct, frozen=True):
    """A task that may go on, as it is now."""

    id: int
    shape_id: int
    status: Status
    start_by: datetime


async def make(conn: Connection, wish: Wish) -> bool:
    """Write a wish down; False when there is no such graph, or it is being cancelled."""
    return bool(
        await conn.fetchval(
            SQL["make_wish"], wish.tenant_id, wish.graph_id, wish.id, wish.kind.value
        )
    )


async def read_kind(conn: Connection, tenant_id: int, graph_id: int) -> WishKind | None:
    """Return what is being done to a graph, if anything is."""
    kind = await conn.fetchval(SQL["read_wish"], tenant_id, graph_id)
    return None if kind is None else WishKind(kind)


async def take_piece(conn: Connection, wish: Wish, *, limit: int) -> tuple[list[int], int] | None:
    """Lock a wish; return the tasks that are next, and how many are left then.

    None when it is done, or another has taken its place.
    """
    row = await conn.fetchrow(SQL["take_piece"], wish.tenant_id, wish.graph_id, wish.id, limit)
    if row is None:
        return None
    ids = row["ids"] or []
    return ids, row["to_go"] - len(ids) if ids else 0


async def move(conn: Connection, wish: Wish, left: int) -> None:
    """Note that a locked wish has come so far; it is forgotten when nothing is left."""
    if left:
        await conn.execute(SQL["move_wish"], wish.graph_id, left)
    else:
        await conn.execute(SQL["end_wish"], wish.graph_id)


async def read_abandoned(conn: Connection, since: timedelta) -> Wish | None:
    """Return a wish that nobody has gone on with for so long."""
    row = await conn.fetchrow(SQL["read_abandoned"], since)
    return None if row is None else msgspec.convert(dict(row), Wish)


async def pause(
    conn: Connection, tenant_id: int, ids: Sequence[int], cause: Cause
) -> dict[int, bool]:
    """Pause tasks; return those that were not, True for those that run: these go on."""
    rows = await conn.fetch(SQL["pause_tasks"], tenant_id, list(ids))
    paused = {row["id"]: row["runs"] for row in rows}
    if paused:
        details = msgspec.json.encode(cause).decode()
        await conn.execute(SQL["note_pause"], list(paused), details)
    return paused


async def resume(conn: Connection, tenant_id: int, ids: Sequence[int]) -> list[Resumed]:
    """Let tasks go on that are paused, and return them."""
    held = [row["id"] for row in await conn.fetch(SQL["lock_paused"], tenant_id, list(ids))]
    if not held:
        return []
    await conn.execute(SQL["count_from_pause"], held)
    rows = await conn.fetch(SQL["resume_tasks"], tenant_id, held)
    resumed = [row["id"] for row in rows]
    sooner = await conn.fetch(SQL["keep_latest_start"], tenant_id, resumed)
    changed = {row["id"]: dict(row) for row in sooner}
    return [msgspec.convert({**dict(row), **changed.get(row["id"], {})}, Resumed) for row in rows]


async def read_pause(conn: Connection, tenant_id: int, task_id: int) -> Pause | None:
    """Return how a task came to be paused, as far as is remembered."""
    row = await conn.fetchrow(SQL["read_pause"], tenant_id, task_id)
    if row is None:
        return None
    return Pause(row["at"], msgspec.convert(row["details"], Cause))
