"""What is replayed together: a task that has ended, and those that were cancelled because of it."""

from collections.abc import Sequence

import msgspec

from duly.model.graph import Condition
from duly.store.database import Connection, load_statements

SQL = load_statements("replays.sql")


class Needed(msgspec.Struct, frozen=True, gc=False):
    """A task that another depended on."""

    dependant_id: int
    upstream_id: int
    condition: Condition
    is_met: bool | None
    """Whether it has ended as asked; None while it is live."""
    ref: str | None
    """By what the other called it, if not by its id."""


async def read_lost(
    conn: Connection, tenant_id: int, task_id: int, *, limit: int
) -> tuple[list[int], bool]:
    """Return an ended task and those that were cancelled because of it.

    True with them if there are others of which that is not decided yet.
    """
    rows = await conn.fetch(SQL["read_lost"], tenant_id, task_id, limit)
    return [row["id"] for row in rows], any(row["is_untold"] for row in rows)


async def read_upstreams(conn: Connection, tenant_id: int, ids: Sequence[int]) -> list[Needed]:
    """Return what tasks depended on, as far as it is known."""
    rows = await conn.fetch(SQL["read_upstreams"], tenant_id, list(ids))
    return [msgspec.convert(dict(row), Needed) for row in rows]


async def read_replays(conn: Connection, tenant_id: int, ids: Sequence[int]) -> dict[int, int]:
    """Return the last replays of those tasks that were replayed."""
    rows = await conn.fetch(SQL["read_replays"], tenant_id, list(ids))
    return {row["task_id"]: row["id"] for row in rows}


async def read_graph_name(conn: Connection, tenant_id: int, task_id: int) -> str | None:
    """Return the name of the graph with which a task was submitted, if it has one."""
    name: str | None = await conn.fetchval(SQL["read_graph_name"], tenant_id, task_id)
    return name
