"""Operators' views: nodes, servers, and the number of tasks in each status.

Counts are exact up to a bound, which caps their cost. A node's usage is derived from its leases,
in the same way as for placement.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from duly.model.node import NodeStatus, Offer
from duly.model.resources import NO_RESOURCES, Resources
from duly.store.attempts import leases
from duly.store.database import Connection, load_statements
from duly.store.fleet import fleet_snapshot
from duly.store.fleet.servers import SCHEDULING

SQL = load_statements("overview.sql")
ALL_NODES = 100_000


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as an operator sees it."""

    id: int
    name: str
    status: NodeStatus
    capacity: Resources
    reported_capacity: Resources | None
    """What the agent reports, if an administrator has overridden it."""
    free: Resources
    labels: dict[str, str]
    last_heartbeat_at: datetime | None
    tasks: int
    enforcement: dict[str, str]
    shortage: str | None
    tenant: str | None = None
    """The tenant of a worker; None for an agent."""
    functions: list[str] | None = None
    """The functions that a worker knows."""

    @property
    def takes_tasks(self) -> bool:
        """Return True if tasks can start on the node now, if they fit."""
        return self.status is NodeStatus.READY and self.shortage is None


class TaskCounts(msgspec.Struct, frozen=True):
    """A tenant's tasks by status; ended ones within a time window."""

    scheduled: int
    blocked: int
    waiting: int
    running: int
    paused: int
    done: int
    failed: int
    cancelled: int


class LiveCounts(msgspec.Struct, frozen=True):
    """The live tasks of all tenants."""

    waiting: int
    running: int
    scheduled: int


class LeaderStatus(msgspec.Struct, frozen=True):
    """PostgreSQL's time and version, the leader, and what it has stored of peak time."""

    time: datetime
    version: str
    leader: str | None
    peak: dict[str, datetime]
    """The kinds of resources at peak, each with the time since when."""


class Duty(msgspec.Struct, frozen=True):
    """A duty that a server leads, with its term."""

    name: str
    term: int


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A server as an operator sees it."""

    number: int
    host: str
    address: str | None
    pid: int | None
    version: str
    started_at: datetime
    last_heartbeat_at: datetime
    is_alive: bool
    duties: list[Duty]


async def read_servers(
    conn: Connection, *, silence: timedelta, listed: timedelta
) -> list[ServerView]:
    """Return the servers by number; one counts as alive if it sent a heartbeat within `silence`.

    A server that has left, or sent no heartbeat within `listed`, is not returned.
    """
    views: dict[int, ServerView] = {}
    for row in await conn.fetch(SQL["read_servers"], silence, listed):
        view = views.setdefault(
            row["number"],
            ServerView(
                number=row["number"],
                host=row["host"],
                address=row["address"],
                pid=row["pid"],
                version=row["version"],
                started_at=row["started_at"],
                last_heartbeat_at=row["heartbeat_at"],
                is_alive=row["is_alive"],
                duties=[],
            ),
        )
        if row["duty"] is not None:
            view.duties.append(Duty(row["duty"], row["term"]))
    return list(views.values())


async def read_nodes(
    conn: Connection,
    *,
    before: int = 2**63 - 1,
    limit: int = ALL_NODES,
    node_id: int | None = None,
    name: str | None = None,
    tenant_id: int | None = None,
) -> list[NodeView]:
    """Return nodes, newest first, with what is free on each; of a tenant, its workers."""
    rows = await conn.fetch(SQL["read_nodes"], before, limit, node_id, name, tenant_id)
    held = await fleet_snapshot.read_snapshot(conn)
    used = held.used(await leases.read_shapes(conn, sorted(held.shapes)))
    reserved = held.reserved_by_node()
    tasks: dict[int, int] = {}
    for use in held.in_use:
        tasks[use.incarnation_id] = tasks.get(use.incarnation_id, 0) + use.times
    views = []
    for row in rows:
        incarnation = row["incarnation_id"]
        capacity = msgspec.convert(row["capacity"] or {}, Resources)
        running = tasks.get(incarnation, 0)
        views.append(
            NodeView(
                id=row["id"],
                name=row["name"],
                status=_status(row, running),
                capacity=capacity,
                reported_capacity=_resources(row["reported_capacity"]),
                free=(
                    capacity.plus(used.get(incarnation, NO_RESOURCES), -1).plus(
                        reserved.get(row["id"], NO_RESOURCES), -1
                    )
                    if row["is_alive"]
                    else NO_RESOURCES
                ),
                labels=row["labels"],
                last_heartbeat_at=row["last_heartbeat_at"],
                tasks=running,
                enforcement=row["enforcement"],
                shortage=row["shortage"] if row["is_alive"] else None,
                tenant=row["tenant"],
                functions=row["functions"],
            )
        )
    return views


async def read_offers(conn: Connection) -> list[Offer]:
    """Return the free resources of every live node, as placement sees them."""
    held = await fleet_snapshot.read_snapshot(conn)
    return held.free(await leases.read_shapes(conn, sorted(held.shapes)))


async def count_tasks(conn: Connection, tenant_id: int, *, window: timedelta) -> TaskCounts:
    """Count a tenant's tasks; ended ones within the last `window`."""
    now: datetime = await conn.fetchval("select duly.now()")
    row = await conn.fetchrow(SQL["count_tasks"], tenant_id, now - window)
    return msgspec.convert(dict(row or {}), TaskCounts)


async def count_postponed(
    conn: Connection,
    tenant_id: int | None,
    kinds: Sequence[str],
    *,
    urgent_slack: timedelta,
    postpone_slack: timedelta,
) -> int:
    """Count the tasks of a tenant, or of all, that wait for the end of peak time of some kinds."""
    count: int = await conn.fetchval(
        SQL["count_postponed"], tenant_id, kinds, urgent_slack, postpone_slack
    )
    return count


async def count_live(conn: Connection) -> LiveCounts:
    """Count the live tasks of all tenants."""
    row = await conn.fetchrow(SQL["count_live"])
    return msgspec.convert(dict(row or {}), LiveCounts)


async def read_leader(conn: Connection) -> LeaderStatus:
    """Return PostgreSQL's time and version, and the leader."""
    row = await conn.fetchrow(SQL["read_leader"], SCHEDULING)
    return msgspec.convert(dict(row or {}), LeaderStatus)


async def is_migrated(conn: Connection) -> bool:
    """Return True if the database answers and is migrated."""
    return bool(await conn.fetchval(SQL["is_migrated"]))


def _resources(stored: Mapping[str, Any] | None) -> Resources | None:
    return None if stored is None else msgspec.convert(stored, Resources)


def _status(row: asyncpg.Record, tasks: int) -> NodeStatus:
    if not row["is_alive"]:
        return NodeStatus.STOPPED if row["has_left"] else NodeStatus.LOST
    if not row["draining"]:
        return NodeStatus.READY
    return NodeStatus.DRAINING if tasks else NodeStatus.DRAINED
