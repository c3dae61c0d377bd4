"""Reads what is replayed together: an ended task and the tasks cancelled because of it."""

from collections.abc import Sequence

import msgspec

from duly.model.graph import Condition
from duly.store.database import Connection, load_statements

SQL = load_statements("replays.sql")


class UpstreamEdge(msgspec.Struct, frozen=True, gc=False):
    """A dependency of a task that is to be replayed."""

    dependant_id: int
    upstream_id: int
    condition: Condition
    is_met: bool | None
    """Whether the upstream's end meets the condition; None while it is live."""
    ref: str | None
    """The name that the dependant used, if not the id."""


async def read_cancelled_downstream(
    conn: Connection, tenant_id: int, task_id: int, *, limit: int
) -> tuple[list[int], bool]:
    """Return an ended task and the tasks cancelled because of it.

    The flag is True if the ends of some of them have not been propagated yet.
    """
    rows = await conn.fetch(SQL["read_cancelled_downstream"], tenant_id, task_id, limit)
    return [row["id"] for row in rows], any(row["is_untold"] for row in rows)


async def read_upstreams(
    conn: Connection, tenant_id: int, ids: Sequence[int]
) -> list[UpstreamEdge]:
    """Return the dependencies of tasks, as far as they are still stored."""
    rows = await conn.fetch(SQL["read_upstreams"], tenant_id, list(ids))
    return [msgspec.convert(dict(row), UpstreamEdge) for row in rows]


async def read_replays(conn: Connection, tenant_id: int, ids: Sequence[int]) -> dict[int, int]:
    """Return the latest replay of each task that has been replayed."""
    rows = await conn.fetch(SQL["read_replays"], tenant_id, list(ids))
    return {row["task_id"]: row["id"] for row in rows}


async def read_graph_name(conn: Connection, tenant_id: int, task_id: int) -> str | None:
    """Return the name of a task's graph, if it has one."""
    name: str | None = await conn.fetchval(SQL["read_graph_name"], tenant_id, task_id)
    return name
