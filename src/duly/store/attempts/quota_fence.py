"""Quotas: what tenants may have at once, and the marks that keep every count of it exact.

What a tenant has is derived from live rows (`stock`), by the leader alone. That nothing has
changed since it was counted is what the marks tell: `revision` rises with the limits, `given`
with whatever is given to a tenant that has some.
"""

from collections.abc import Collection

import msgspec

from duly.model.limits import Limits
from duly.store.database import Connection, load_statements

SQL = load_statements("quotas.sql")


class Granted(msgspec.Struct, frozen=True):
    """What tenants may have, by a revision of the limits."""

    revision: int
    limits: dict[int, Limits]


async def read_limits(conn: Connection, tenants: Collection[int]) -> Granted:
    """Return what tenants may have at once."""
    rows = await conn.fetch(SQL["read_limits"], list(tenants))
    return Granted(
        rows[0]["revision"],
        {
            row["tenant_id"]: Limits(row["max_running"], row["max_resources"], row["is_suspended"])
            for row in rows
            if row["tenant_id"] is not None
        },
    )


async def give(conn: Connection, tenant_id: int) -> None:
    """Let no lease be made by what was counted before, from now until the commit and after it."""
    await conn.execute(SQL["give"], tenant_id)
