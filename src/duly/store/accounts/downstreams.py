"""Limits of what tasks call, for all tenants or for one, and what throttling has left of them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg
import msgspec

from duly.model.queues.downstream import Downstream
from duly.store.database import Connection, load_statements
from duly.store.fleet.fleet_snapshot import DownstreamRevision

SQL = load_statements("downstreams.sql")
FIELDS = Downstream.__struct_fields__


class ThrottledCall(NamedTuple):
    """A call of a running attempt that was throttled; without a key, any that its task uses."""

    task: int
    attempt: int
    token: int
    key: str | None
    retry_after: float


class Throttling(NamedTuple):
    """Locked limits, the time, and the longest pause in seconds that calls ask for."""

    downstream: Downstream
    now: datetime
    retry_after: float


class DownstreamView(NamedTuple):
    """Limits, and the number of tasks that run and wait under them."""

    downstream: Downstream
    running: int
    waiting: int


async def read_for_leader(
    conn: Connection, keys: Collection[str], changed_after: int = -1
) -> tuple[list[Downstream], DownstreamRevision]:
    """Return the limits of keys that throttling changed after a revision, and the revisions."""
    rows = await conn.fetch(SQL["read_for_leader"], list(keys), changed_after)
    revision = DownstreamRevision(rows[0]["defined"], rows[0]["adapted"])
    return [_downstream(row) for row in rows if row["id"] is not None], revision


async def read_by_key(
    conn: Connection, tenants: Collection[int], keys: Collection[str]
) -> list[Downstream]:
    """Return the limits that apply to tasks of some tenants that use some keys."""
    rows = await conn.fetch(SQL["read_by_key"], list(tenants), list(keys))
    return [_downstream(row) for row in rows]


async def read_list(conn: Connection, tenant_id: int, *, all_tenants: bool) -> list[DownstreamView]:
    """Return the limits that a tenant sees; with `all_tenants`, tasks of all are counted."""
    rows = await conn.fetch(SQL["list_downstreams"], tenant_id, all_tenants)
    return [DownstreamView(_downstream(row), row["running"], row["waiting"]) for row in rows]


async def lock_revision(conn: Connection) -> None:
    """Lock all definitions for a change until the commit, and tell the leader of it."""
    await conn.execute(SQL["lock_revision"])


async def count(conn: Connection, tenant_id: int | None) -> int:
    """Return how many keys a tenant, or everyone, has limits for."""
    number: int = await conn.fetchval(SQL["count_downstreams"], tenant_id)
    return number


async def put(
    conn: Connection,
    tenant_id: int | None,
    key: str,
    rate: float | None,
    concurrency: int | None,
    *,
    adaptive: bool,
) -> bool:
    """Set the limits of a key, for a tenant or for everyone; return whether the key is new."""
    return bool(
        await conn.fetchval(SQL["set_downstream"], tenant_id, key, rate, concurrency, adaptive)
    )


async def remove(conn: Connection, tenant_id: int | None, key: str) -> bool:
    """Remove the limits of a key; False if there are none."""
    return await conn.fetchval(SQL["remove_downstream"], tenant_id, key) is not None


async def lock_throttled(
    conn: Connection, node_id: int, calls: Sequence[ThrottledCall]
) -> list[Throttling]:
    """Lock the limits that apply to throttled calls of a node's attempts."""
    rows = await conn.fetch(
        SQL["lock_throttled"],
        node_id,
        [call.task for call in calls],
        [call.attempt for call in calls],
        [call.token for call in calls],
        [call.key for call in calls],
        [call.retry_after for call in calls],
    )
    return [Throttling(_downstream(row), row["now"], row["retry_after"]) for row in rows]


async def store_throttled(conn: Connection, changed: Sequence[Downstream]) -> None:
    """Store what throttling has left of locked limits."""
    await conn.execute(
        SQL["store_throttled"],
        [downstream.id for downstream in changed],
        [downstream.factor for downstream in changed],
        [downstream.throttled_at for downstream in changed],
        [downstream.retry_at for downstream in changed],
    )


async def store_raised(conn: Connection, raised: Sequence[Downstream]) -> None:
    """Store raised factors, except of limits that were throttled or set meanwhile."""
    await conn.execute(
        SQL["store_raised"],
        [downstream.id for downstream in raised],
        [downstream.factor for downstream in raised],
        [downstream.throttled_at for downstream in raised],
    )


def _downstream(row: asyncpg.Record) -> Downstream:
    return msgspec.convert({name: row[name] for name in FIELDS}, Downstream)
