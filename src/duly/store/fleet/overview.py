"""The whole at a glance: nodes, and how many tasks there are of each kind.

Counts are exact up to a bound and cost no more beyond it; what is in use on a node
is derived from the leases, as it is when tasks are placed.
"""

from datetime import datetime, timedelta

import msgspec

from duly.model.node import NodeStatus, Offer
from duly.model.resources import NOTHING, Resources
from duly.store import leases, stock
from duly.store.database import Connection, load_statements
from duly.store.servers import SCHEDULING

SQL = load_statements("overview.sql")
ALL_NODES = 100_000


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as an operator sees it."""

    id: int
    name: str
    status: NodeStatus
    capacity: Resources
    free: Resources
    labels: dict[str, str]
    last_heartbeat_at: datetime | None
    tasks: int
    enforcement: dict[str, str]
    shortage: str | None


class TaskCounts(msgspec.Struct, frozen=True):
    """How many tasks of a tenant are in each status; final ones within a window of time."""

    scheduled: int
    blocked: int
    waiting: int
    running: int
    paused: int
    done: int
    failed: int
    cancelled: int


class LiveCounts(msgspec.Struct, frozen=True):
    """How many tasks of all tenants are live."""

    waiting: int
    running: int
    scheduled: int


class Lead(msgspec.Struct, frozen=True):
    """The time, the version of PostgreSQL, and who leads."""

    time: datetime
    version: str
    leader: str | None


class Duty(msgspec.Struct, frozen=True):
    """What a server leads, and in which term."""

    name: str
    term: int


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A server as an operator sees it."""

    number: int
    version: str
    started_at: datetime
    last_heartbeat_at: datetime
    is_alive: bool
    duties: list[Duty]


async def read_servers(
    conn: Connection, *, silence: timedelta, listed: timedelta
) -> list[ServerView]:
    """Return the servers by number; one is alive if it was silent for no longer than `silence`.

    One that has been silent for longer than `listed`, or has left, is not returned.
    """
    found: dict[int, ServerView] = {}
    for row in await conn.fetch(SQL["read_servers"], silence, listed):
        view = found.setdefault(
            row["number"],
            ServerView(
                number=row["number"],
                version=row["version"],
                started_at=row["started_at"],
                last_heartbeat_at=row["heartbeat_at"],
                is_alive=row["is_alive"],
                duties=[],
            ),
        )
        if row["duty"] is not None:
            view.duties.append(Duty(row["duty"], row["term"]))
    return list(found.values())


async def read_nodes(
    conn: Connection,
    *,
    before: int = 2**63 - 1,
    limit: int = ALL_NODES,
    node_id: int | None = None,
    name: str | None = None,
) -> list[NodeView]:
    """Return nodes, newest first, with what is free on each."""
    rows = await conn.fetch(SQL["read_nodes"], before, limit, node_id, name)
    held = await stock.read_stock(conn)
    used = held.used(await leases.read_shapes(conn, sorted(held.shapes)))
    reserved = held.reserved_by_node()
    tasks: dict[int, int] = {}
    for one in held.in_use:
        tasks[one.incarnation_id] = tasks.get(one.incarnation_id, 0) + one.times
    views = []
    for row in rows:
        incarnation = row["incarnation_id"]
        capacity = msgspec.convert(row["capacity"] or {}, Resources)
        running = tasks.get(incarnation, 0)
        views.append(
            NodeView(
                id=row["id"],
                name=row["name"],
                status=_status(alive=row["is_alive"], draining=row["draining"], tasks=running),
                capacity=capacity,
                free=(
                    capacity.plus(used.get(incarnation, NOTHING), -1).plus(
                        reserved.get(row["id"], NOTHING), -1
                    )
                    if row["is_alive"]
                    else NOTHING
                ),
                labels=row["labels"],
                last_heartbeat_at=row["last_heartbeat_at"],
                tasks=running,
                enforcement=row["enforcement"],
                shortage=row["shortage"] if row["is_alive"] else None,
            )
        )
    return views


async def read_offers(conn: Connection) -> list[Offer]:
    """Return what every live node has left, as it is seen when tasks are placed."""
    held = await stock.read_stock(conn)
    return held.free(await leases.read_shapes(conn, sorted(held.shapes)))


async def count_tasks(conn: Connection, tenant_id: int, *, window: timedelta) -> TaskCounts:
    """Count a tenant's tasks; those that have ended, within the last `window`."""
    now: datetime = await conn.fetchval("select duly.now()")
    row = await conn.fetchrow(SQL["count_tasks"], tenant_id, now - window)
    return msgspec.convert(dict(row or {}), TaskCounts)


async def count_live(conn: Connection) -> LiveCounts:
    """Count the live tasks of all tenants."""
    row = await conn.fetchrow(SQL["count_live"])
    return msgspec.convert(dict(row or {}), LiveCounts)


async def read_lead(conn: Connection) -> Lead:
    """Return the time, the version of PostgreSQL, and who leads."""
    row = await conn.fetchrow(SQL["read_leader"], SCHEDULING)
    return msgspec.convert(dict(row or {}), Lead)


async def answers(conn: Connection) -> bool:
    """Say whether the database is there and migrated."""
    return bool(await conn.fetchval(SQL["answers"]))


def _status(*, alive: bool, draining: bool, tasks: int) -> NodeStatus:
    if not alive:
        return NodeStatus.LOST
    if not draining:
        return NodeStatus.READY
    return NodeStatus.DRAINING if tasks else NodeStatus.DRAINED
