"""What names of tiers stand for, as it is stored: for everybody, and for one tenant."""

from datetime import datetime

import msgspec

from duly.model.resources import Resources
from duly.store.database import Connection, load_statements

SQL = load_statements("tiers.sql")


class Tier(msgspec.Struct, frozen=True):
    """What a name stands for, as somebody has said it."""

    name: str
    resources: Resources
    created_at: datetime
    is_own: bool
    """Whether it is the tenant's own; otherwise it is everybody's."""


async def read(conn: Connection, tenant_id: int) -> list[Tier]:
    """Return what was said for everybody, and what for one tenant."""
    rows = await conn.fetch(SQL["read_tiers"], tenant_id)
    return [msgspec.convert(dict(row), Tier) for row in rows]


async def lock(conn: Connection, tenant_id: int | None) -> None:
    """Let nobody else change the tiers of a tenant, or of everybody, until the commit."""
    await conn.execute(SQL["lock_tiers"], tenant_id)


async def put(conn: Connection, tenant_id: int | None, name: str, resources: Resources) -> None:
    """Say what a name stands for, for a tenant or for everybody."""
    await conn.execute(SQL["set_tier"], tenant_id, name, msgspec.to_builtins(resources))


async def remove(conn: Connection, tenant_id: int | None, name: str) -> bool:
    """Take back what was said of a name; False when nothing was."""
    return bool(await conn.fetchval(SQL["remove_tier"], tenant_id, name))


async def plans_with(conn: Connection, name: str) -> list[str]:
    """Return the names of the plans that name a tier."""
    return [row["name"] for row in await conn.fetch(SQL["plans_with_tier"], name)]
