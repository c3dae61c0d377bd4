"""Reservations of node resources, and the list of a tenant's allocations."""

from datetime import datetime
from typing import Literal

import msgspec

from duly.model.resources import Resources
from duly.store.database import Connection, load_statements

SQL = load_statements("reservations.sql")
MAX_ID = 2**63 - 1


class Reservation(msgspec.Struct, frozen=True):
    """Resources kept free on a node until `expires_at`; None means until released."""

    id: int
    node_id: int
    resources: Resources
    expires_at: datetime | None


class Allocation(msgspec.Struct, frozen=True):
    """A tenant's resources on a node: a running task, whose id it has, or a reservation."""

    id: int
    kind: Literal["task", "reservation"]
    tenant: str
    node: str
    resources: Resources
    expires_at: datetime | None


async def lock_node(conn: Connection, node_id: int) -> bool:
    """Block leases on a node until the commit, and invalidate placements decided before.

    Returns False if there is no such node.
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
    """Change a reservation; False if it has been released meanwhile."""
    resources = msgspec.to_builtins(changed.resources)
    return bool(await conn.fetchval(SQL["change"], changed.id, resources, changed.expires_at))


async def release(conn: Connection, tenant_id: int, reservation_id: int) -> bool:
    """Release a reservation; False if there is no such reservation."""
    return bool(await conn.fetchval(SQL["release"], tenant_id, reservation_id))


async def drop_expired(conn: Connection) -> None:
    """Delete expired reservations."""
    await conn.execute(SQL["drop_expired"])


async def read_allocations(
    conn: Connection,
    tenant_id: int | None,
    *,
    before: int = MAX_ID,
    limit: int = 1,
    allocation_id: int | None = None,
    node: str | None = None,
) -> list[Allocation]:
    """Return a tenant's allocations, newest first; those of all tenants without a `tenant_id`."""
    rows = await conn.fetch(SQL["read_allocations"], tenant_id, before, limit, allocation_id, node)
    return [msgspec.convert(dict(row), Allocation) for row in rows]
