"""Artifacts: their owner, the blob that holds their bytes, and the tasks and schedules using them.

A use references the artifact's row by a foreign key, in the transaction that stores the task or
the schedule. A removal locks that row first and then checks for uses, so every admitted task finds
its artifact.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from duly.model.artifact import MIN_ACCOUNTED_BYTES
from duly.store.database import Connection, load_statements

SQL = load_statements("artifacts.sql")
MAX_ID = 2**63 - 1


class Artifact(msgspec.Struct, frozen=True):
    """A bundle that a tenant has uploaded."""

    id: int
    sha256: bytes
    bytes: int
    blob: int
    """The id of its bytes in the object store."""
    created_at: datetime
    last_used_at: datetime


class Blob(msgspec.Struct, frozen=True):
    """A tenant's object in the object store."""

    tenant_id: int
    id: int
    bytes: int


MISSING_BLOB = Blob(0, 0, 0)
"""Stands for the bytes of an artifact that is gone."""


class ArtifactUser(msgspec.Struct, frozen=True):
    """A task or a schedule that uses an artifact."""

    id: int
    is_schedule: bool


async def find(conn: Connection, tenant_id: int, sha256: bytes) -> Artifact | None:
    """Return a tenant's artifact by its hash."""
    row = await conn.fetchrow(SQL["read_artifact"], tenant_id, sha256)
    return None if row is None else Artifact(**dict(row))


async def read(
    conn: Connection,
    tenant_id: int,
    *,
    before: int = MAX_ID,
    limit: int = 1,
    sha256: bytes | None = None,
) -> list[Artifact]:
    """Return artifacts of a tenant below the id `before`, newest first, with their last use."""
    rows = await conn.fetch(SQL["read_artifacts"], tenant_id, before, limit, sha256)
    return [Artifact(**dict(row)) for row in rows]


async def lock_uploads(conn: Connection, tenant_id: int) -> None:
    """Block other uploads of a tenant until the commit."""
    await conn.execute(SQL["lock_uploads"], tenant_id)


async def count_bytes(conn: Connection, tenant_id: int) -> int:
    """Return the bytes that a tenant's artifacts count towards its limit."""
    total: int = await conn.fetchval(SQL["count_bytes"], tenant_id, MIN_ACCOUNTED_BYTES)
    return total


async def add(conn: Connection, tenant_id: int, sha256: bytes, blob: Blob) -> None:
    """Store an artifact that the tenant does not have; its id is that of its first blob."""
    await conn.execute(SQL["add_artifact"], blob.id, tenant_id, sha256, blob.bytes)


async def move(conn: Connection, artifact_id: int, blob: Blob) -> None:
    """Point an artifact to another blob."""
    await conn.execute(SQL["move_artifact"], artifact_id, blob.id)


async def add_uses(
    conn: Connection, tenant_id: int, uses: Sequence[tuple[bytes, int]]
) -> set[bytes]:
    """Record uses as (hash, task or schedule); return the hashes that the tenant does not have."""
    hashes, users = [sha256 for sha256, _ in uses], [user for _, user in uses]
    rows = await conn.fetch(SQL["add_uses"], tenant_id, hashes, users)
    return {row["sha256"] for row in rows}


async def touch(conn: Connection, tenant_id: int, artifact_id: int, *, again: timedelta) -> bool:
    """Update the last use of an artifact; False if it is gone.

    An update within `again` of the previous one is skipped.
    """
    exists: bool = await conn.fetchval(SQL["touch_artifact"], tenant_id, artifact_id, again)
    return exists


async def drop_uses(conn: Connection, tenant_id: int, used_by: int) -> None:
    """Remove all uses by a task or a schedule."""
    await conn.execute(SQL["drop_uses"], tenant_id, used_by)


async def lock(conn: Connection, tenant_id: int, sha256: bytes) -> Artifact | None:
    """Lock an artifact against new uses; None if it does not exist."""
    row = await conn.fetchrow(SQL["lock_artifact"], tenant_id, sha256)
    return None if row is None else Artifact(**dict(row))


async def read_user(conn: Connection, artifact_id: int) -> ArtifactUser | None:
    """Return one of the users of a locked artifact, if any."""
    row = await conn.fetchrow(SQL["read_user"], artifact_id)
    return None if row is None else ArtifactUser(row["used_by"], row["is_schedule"])


async def remove(conn: Connection, artifact_id: int) -> None:
    """Remove a locked artifact that has no users."""
    await conn.execute(SQL["remove_artifact"], artifact_id)


async def read_leased(conn: Connection, node_id: int, ref: tuple[int, int, int]) -> Blob | None:
    """Return the artifact's blob of an attempt that a node holds; MISSING_BLOB if it is gone."""
    row = await conn.fetchrow(SQL["read_leased"], node_id, *ref)
    if row is None:
        return None
    return (
        MISSING_BLOB if row["blob"] is None else Blob(row["tenant_id"], row["blob"], row["bytes"])
    )


async def drop_ended_uses(conn: Connection, *, above: int, limit: int) -> int | None:
    """Remove the uses of ended tasks among the next `limit`; return the last one, if any."""
    last: int | None = await conn.fetchval(SQL["drop_ended_uses"], above, limit)
    return last


async def expire(conn: Connection, *, unused_for: timedelta, limit: int) -> list[Blob]:
    """Remove artifacts unused for this long; return their blobs, now unreferenced."""
    ids = [row["id"] for row in await conn.fetch(SQL["lock_expired"], unused_for, limit)]
    if not ids:
        return []
    rows = await conn.fetch(SQL["remove_expired"], ids)
    return [Blob(row["tenant_id"], row["blob"], row["bytes"]) for row in rows]


async def read_referenced_blobs(conn: Connection, blobs: Sequence[int]) -> set[int]:
    """Return the blobs that belong to an artifact."""
    return {row["blob"] for row in await conn.fetch(SQL["read_referenced_blobs"], list(blobs))}
