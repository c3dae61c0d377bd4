"""Reservations: parts of nodes that are kept free of tasks, and who has what of the nodes."""

from datetime import datetime
from typing import Literal

import msgspec

from duly.model.resources import Resources
from duly.store.database import Connection, load_statements

SQL = load_statements("reservations.sql")
NEWEST = 2**63 - 1


class Reservation(msgspec.Struct, frozen=True):
    """What is kept free on a node, and until when (None is for good)."""

    id: int
    node_id: int
    resources: Resources
    expires_at: datetime | None


class Allocation(msgspec.Struct, frozen=True):
    """What a tenant has of a node: for a task that runs, whose id it has, or reserved."""

    id: int
    kind: Literal["task", "reservation"]
    node: str
    resources: Resources
    expires_at: datetime | None


async def lock_node(conn: Connection, node_id: int) -> bool:
    """Let nothing be leased on a node until the commit, nor by what was free before.

    False means that there is no such node.
    """
    if await conn.fetchval(SQL["lock_node"], node_id) is None:
        return False
    await conn.execute(SQL["lock_incarnation"], node_id)
    return True


async def add(conn: Connection, tenant_id: int, reservation: Reservation) -> None:
    """Store a reservation; its node is locked."""
    await conn.execute(
        SQL["add"],
        reservation.id,
        tenant_id,
        reservation.node_id,
        msgspec.to_builtins(reservation.resources),
        reservation.expires_at,
    )


async def find(conn: Connection, tenant_id: int, reservation_id: int) -> Reservation | None:
    """Return a reservation; None when it has expired, or is another tenant's."""
    row = await conn.fetchrow(SQL["find"], tenant_id, reservation_id)
    return None if row is None else msgspec.convert(dict(row), Reservation)


async def change(conn: Connection, changed: Reservation) -> bool:
    """Store what a reservation is from now on; False when it has been released meanwhile."""
    resources = msgspec.to_builtins(changed.resources)
    return bool(await conn.fetchval(SQL["change"], changed.id, resources, changed.expires_at))


async def release(conn: Connection, tenant_id: int, reservation_id: int) -> bool:
    """Give back what is reserved; False when there is no such reservation."""
    return bool(await conn.fetchval(SQL["release"], tenant_id, reservation_id))


async def drop_expired(conn: Connection) -> None:
    """Forget reservations that have expired."""
    await conn.execute(SQL["drop_expired"])


async def read_allocations(
    conn: Connection,
    tenant_id: int,
    *,
    before: int = NEWEST,
    limit: int = 1,
    allocation_id: int | None = None,
) -> list[Allocation]:
    """Return what a tenant has of the nodes, newest first."""
    rows = await conn.fetch(SQL["read_allocations"], tenant_id, before, limit, allocation_id)
    return [msgspec.convert(dict(row), Allocation) for row in rows]
