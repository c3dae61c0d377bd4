"""The token buckets of tenants' rate limits.

Single tasks are charged by the statement that stores them (`tasks.insert`). A transaction that
stores many locks the bucket first, before any idempotency key: one lock order for all prevents
deadlocks.
"""

from datetime import datetime
from typing import Any

import msgspec

from duly.model.bucket import Bucket, Rate
from duly.store.database import Connection, load_statements

SQL = load_statements("buckets.sql")


class StoredBucket(msgspec.Struct, frozen=True):
    """A bucket as it was last written, and the time now."""

    bucket: Bucket
    now: datetime


async def lock(conn: Connection, tenant_id: int) -> StoredBucket | None:
    """Lock a tenant's bucket until the transaction ends; None when its plan has no rate."""
    row = await conn.fetchrow(SQL["lock_bucket"], tenant_id)
    if row is None:
        await conn.execute(SQL["make_bucket"], tenant_id)
        row = await conn.fetchrow(SQL["lock_bucket"], tenant_id)
    return None if row is None else _stored_bucket(row)


async def read(conn: Connection, tenant_id: int) -> StoredBucket | None:
    """Return a tenant's bucket; None when its plan has no rate, or it has submitted nothing."""
    row = await conn.fetchrow(SQL["read_bucket"], tenant_id)
    return None if row is None else _stored_bucket(row)


async def write(conn: Connection, tenant_id: int, bucket: Bucket) -> None:
    """Store the tokens left in a locked bucket."""
    await conn.execute(SQL["write_bucket"], tenant_id, bucket.tokens, bucket.at)


def _stored_bucket(row: Any) -> StoredBucket:
    rate = Rate(row["tasks_per_hour"], row["burst"])
    return StoredBucket(Bucket(rate, row["tokens"], row["filled_at"]), row["now"])
