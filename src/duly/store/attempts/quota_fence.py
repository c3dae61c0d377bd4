"""Tenants' limits, and the fence that detects changes after usage was counted.

The leader counts usage from live rows (`fleet_snapshot`). A lease succeeds only if the fence is
unchanged since the count: `revision` rises with every change of a limit, `given` with every grant
to a tenant that has limits.

Decision: docs/adr/0013-limits-counted-and-fenced.md.
"""

from collections.abc import Collection

import msgspec

from duly.model.limits import Limits
from duly.model.queues.queue import QueueDefinitions
from duly.store.database import Connection, load_statements
from duly.store.fleet import queues

SQL = load_statements("quota_fence.sql")


class TenantLimits(msgspec.Struct, frozen=True):
    """Limits and weights by tenant, and all queues, as of a revision."""

    revision: int
    limits: dict[int, Limits]
    weights: dict[int, int]
    queues: QueueDefinitions


async def read_limits(conn: Connection, tenants: Collection[int]) -> TenantLimits:
    """Return the limits and weights of tenants, and the queues."""
    rows = await conn.fetch(SQL["read_limits"], list(tenants))
    known = [row for row in rows if row["tenant_id"] is not None]
    return TenantLimits(
        rows[0]["revision"],
        {
            row["tenant_id"]: Limits(row["max_running"], row["max_resources"], row["is_suspended"])
            for row in known
        },
        {row["tenant_id"]: row["weight"] for row in known},
        next(queues.decode(row["queues"]) for row in rows if row["queues"] is not None),
    )


async def advance(conn: Connection, tenant_id: int) -> None:
    """Fence off leases decided on earlier counts of a tenant's usage, from now on."""
    await conn.execute(SQL["advance"], tenant_id)
