"""Custom tiers: named amounts of resources, for all tenants or for one."""

from datetime import datetime

import msgspec

from duly.model.resources import Resources
from duly.store.database import Connection, load_statements

SQL = load_statements("tiers.sql")


class Tier(msgspec.Struct, frozen=True):
    """A custom tier and its resources."""

    name: str
    resources: Resources
    created_at: datetime
    is_own: bool
    """Whether the tier is the tenant's own; otherwise it applies to all tenants."""


async def read(conn: Connection, tenant_id: int) -> list[Tier]:
    """Return the custom tiers for all tenants, and those of one tenant."""
    rows = await conn.fetch(SQL["read_tiers"], tenant_id)
    return [msgspec.convert(dict(row), Tier) for row in rows]


async def lock(conn: Connection, tenant_id: int | None) -> None:
    """Lock the tiers of a tenant, or of all tenants, against changes until the commit."""
    await conn.execute(SQL["lock_tiers"], tenant_id)


async def put(conn: Connection, tenant_id: int | None, name: str, resources: Resources) -> None:
    """Set the resources of a tier, for a tenant or for all tenants."""
    await conn.execute(SQL["set_tier"], tenant_id, name, msgspec.to_builtins(resources))


async def remove(conn: Connection, tenant_id: int | None, name: str) -> bool:
    """Remove a custom tier; False if there is none."""
    return bool(await conn.fetchval(SQL["remove_tier"], tenant_id, name))


async def plans_with(conn: Connection, name: str) -> list[str]:
    """Return the names of the plans that list a tier."""
    return [row["name"] for row in await conn.fetch(SQL["plans_with_tier"], name)]
