"""Reads the tasks of all tenants, for administrators.

Only callers with a connection that is not confined to a tenant get anything from these statements
but their own tenant's rows; `views` has the same reads for one tenant.
"""

from datetime import datetime, timedelta

import msgspec

from duly.model.task import FINAL_STATUSES, Status
from duly.store.accounts.plans import plan_of
from duly.store.database import Connection, load_statements
from duly.store.fleet.overview import TaskCounts
from duly.store.tasks.views import OtherTenant, TaskFilter

SQL = load_statements("all_tenants.sql")


class TenantTasks(msgspec.Struct, frozen=True):
    """The tasks of one tenant by status; ended ones within a time window."""

    tenant_id: int
    tenant: str
    tasks: TaskCounts


async def pick(conn: Connection, which: TaskFilter, *, before: int, limit: int) -> list[int]:
    """Return the ids of the newest matching tasks of all tenants below the id `before`."""
    common = (which.labels or None, which.user, which.since, before, limit, which.name)
    if which.statuses or which.node is not None:
        statuses = which.statuses or frozenset(Status)
        rows = await conn.fetch(
            SQL["pick_by_status"],
            *common,
            which.node,
            sorted(statuses - FINAL_STATUSES),
            sorted((statuses & FINAL_STATUSES) - {Status.DONE}),
            Status.DONE in statuses,
            which.overdue,
        )
    else:
        rows = await conn.fetch(SQL["pick_named" if which.name else "pick_newest"], *common)
    return [row["id"] for row in rows]


async def find_owner(conn: Connection, task_id: int) -> OtherTenant | None:
    """Return the tenant of a task; None if there is no such task."""
    row = await conn.fetchrow(SQL["find_owner"], task_id)
    return None if row is None else OtherTenant(row["tenant_id"], row["tenant"], plan_of(row))


async def count_tasks(conn: Connection, *, window: timedelta) -> list[TenantTasks]:
    """Count the tasks of each tenant that has any, by name; ended ones of the last `window`."""
    now: datetime = await conn.fetchval("select duly.now()")
    names: dict[int, str] = {}
    counts: dict[int, dict[str, int]] = {}
    for row in await conn.fetch(SQL["count_tasks"], now - window):
        names[row["tenant_id"]] = row["tenant"]
        counts.setdefault(row["tenant_id"], {})[row["status"]] = row["tasks"]
    return [
        TenantTasks(tenant_id, name, TaskCounts(**dict.fromkeys(Status, 0) | counts[tenant_id]))
        for tenant_id, name in names.items()
    ]


def total(tenants: list[TenantTasks]) -> TaskCounts:
    """Return the tasks of all tenants by status."""
    return TaskCounts(
        **{status: sum(getattr(tenant.tasks, status) for tenant in tenants) for status in Status}
    )
