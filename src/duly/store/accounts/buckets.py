"""The tokens of the tenants' rate limits, as they are stored.

Single tasks are charged by the statement that stores them (`tasks.insert`). Whoever
stores many in a transaction of its own locks the bucket first, before any
idempotency key: with one order for all, nobody waits in a circle.
"""

from datetime import datetime
from typing import Any

import msgspec

from duly.model.bucket import Bucket, Rate
from duly.store.database import Connection, load_statements

SQL = load_statements("buckets.sql")


class Found(msgspec.Struct, frozen=True):
    """A bucket as it was last written, and the time now."""

    bucket: Bucket
    now: datetime


async def lock(conn: Connection, tenant_id: int) -> Found | None:
    """Lock a tenant's bucket until the transaction ends; None when its plan has no rate."""
    row = await conn.fetchrow(SQL["lock_bucket"], tenant_id)
    if row is None:
        await conn.execute(SQL["make_bucket"], tenant_id)
        row = await conn.fetchrow(SQL["lock_bucket"], tenant_id)
    return None if row is None else _found(row)


async def read(conn: Connection, tenant_id: int) -> Found | None:
    """Return a tenant's bucket; None when its plan has no rate, or it has submitted nothing."""
    row = await conn.fetchrow(SQL["read_bucket"], tenant_id)
    return None if row is None else _found(row)


async def settle(conn: Connection, tenant_id: int, bucket: Bucket) -> None:
    """Write what is left in a bucket that is locked."""
    await conn.execute(SQL["settle_bucket"], tenant_id, bucket.tokens, bucket.at)


def _found(row: Any) -> Found:
    rate = Rate(row["tasks_per_hour"], row["burst"])
    return Found(Bucket(rate, row["tokens"], row["filled_at"]), row["now"])
