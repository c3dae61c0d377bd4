"""Artifacts as they are known: whose they are, where their bytes lie, and who needs them.

Who needs an artifact holds its row by a foreign key, in the transaction that stores the task
or the schedule. Whoever removes it locks that row first, and then looks: so it is there for
all that was admitted, or nothing that needs it is.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from duly.model.artifact import LEAST_BYTES
from duly.store.database import Connection, load_statements

SQL = load_statements("artifacts.sql")
NEWEST = 2**63 - 1


class Artifact(msgspec.Struct, frozen=True):
    """A bundle that a tenant has uploaded."""

    id: int
    sha256: bytes
    bytes: int
    blob: int
    """The name of its bytes in the object store."""
    created_at: datetime
    last_used_at: datetime


class Blob(msgspec.Struct, frozen=True):
    """Bytes in the object store, of a tenant."""

    tenant_id: int
    id: int
    bytes: int


NONE = Blob(0, 0, 0)
"""No bytes, although there should be some."""


class User(msgspec.Struct, frozen=True):
    """A task or a schedule that needs an artifact."""

    id: int
    is_schedule: bool


async def find(conn: Connection, tenant_id: int, sha256: bytes) -> Artifact | None:
    """Return the artifact of a tenant with that hash."""
    row = await conn.fetchrow(SQL["read_artifact"], tenant_id, sha256)
    return None if row is None else Artifact(**dict(row))


async def read(
    conn: Connection,
    tenant_id: int,
    *,
    before: int = NEWEST,
    limit: int = 1,
    sha256: bytes | None = None,
) -> list[Artifact]:
    """Return artifacts of a tenant below the id `before`, newest first, with their last use."""
    rows = await conn.fetch(SQL["read_artifacts"], tenant_id, before, limit, sha256)
    return [Artifact(**dict(row)) for row in rows]


async def lock_number(conn: Connection, tenant_id: int) -> None:
    """Let nobody else add an artifact of a tenant before the commit."""
    await conn.execute(SQL["lock_artifacts"], tenant_id)


async def count_bytes(conn: Connection, tenant_id: int) -> int:
    """Return how many bytes the artifacts of a tenant count for."""
    counted: int = await conn.fetchval(SQL["count_bytes"], tenant_id, LEAST_BYTES)
    return counted


async def add(conn: Connection, tenant_id: int, sha256: bytes, blob: Blob) -> None:
    """Store an artifact that the tenant does not have; its id is that of its first bytes."""
    await conn.execute(SQL["add_artifact"], blob.id, tenant_id, sha256, blob.bytes)


async def move(conn: Connection, artifact_id: int, blob: Blob) -> None:
    """Say where the bytes of an artifact are from now on."""
    await conn.execute(SQL["move_artifact"], artifact_id, blob.id)


async def use(conn: Connection, tenant_id: int, uses: Sequence[tuple[bytes, int]]) -> set[bytes]:
    """Note which hashes are needed by whom; return those that the tenant does not have."""
    hashes, users = [one for one, _ in uses], [user for _, user in uses]
    rows = await conn.fetch(SQL["use_artifacts"], tenant_id, hashes, users)
    return {row["sha256"] for row in rows}


async def touch(conn: Connection, tenant_id: int, artifact_id: int, *, again: timedelta) -> bool:
    """Note that somebody means to use an artifact soon; False when it is gone.

    It is noted `again` only after so long.
    """
    is_there: bool = await conn.fetchval(SQL["touch_artifact"], tenant_id, artifact_id, again)
    return is_there


async def drop_uses(conn: Connection, tenant_id: int, used_by: int) -> None:
    """Note that a task or a schedule needs none of what it needed."""
    await conn.execute(SQL["drop_uses"], tenant_id, used_by)


async def lock(conn: Connection, tenant_id: int, sha256: bytes) -> Artifact | None:
    """Lock an artifact, so that nobody begins to need it; None when there is none."""
    row = await conn.fetchrow(SQL["lock_artifact"], tenant_id, sha256)
    return None if row is None else Artifact(**dict(row))


async def read_user(conn: Connection, artifact_id: int) -> User | None:
    """Return one of those that need a locked artifact."""
    row = await conn.fetchrow(SQL["read_user"], artifact_id)
    return None if row is None else User(row["used_by"], row["is_schedule"])


async def remove(conn: Connection, artifact_id: int) -> None:
    """Remove a locked artifact that nobody needs."""
    await conn.execute(SQL["remove_artifact"], artifact_id)


async def read_leased(conn: Connection, node_id: int, ref: tuple[int, int, int]) -> Blob | None:
    """Return the bytes of the artifact of an attempt that a node holds now; NONE if it is gone."""
    row = await conn.fetchrow(SQL["read_leased"], node_id, *ref)
    if row is None:
        return None
    return NONE if row["blob"] is None else Blob(row["tenant_id"], row["blob"], row["bytes"])


async def settle_uses(conn: Connection, *, above: int, limit: int) -> int | None:
    """Forget uses by what has ended, among the next ones; return the last of these, if any."""
    last: int | None = await conn.fetchval(SQL["settle_uses"], above, limit)
    return last


async def expire(conn: Connection, *, unused_for: timedelta, limit: int) -> list[Blob]:
    """Remove artifacts that nobody needed for so long; return the bytes that are nobody's now."""
    ids = [row["id"] for row in await conn.fetch(SQL["lock_expired"], unused_for, limit)]
    if not ids:
        return []
    rows = await conn.fetch(SQL["remove_expired"], ids)
    return [Blob(row["tenant_id"], row["blob"], row["bytes"]) for row in rows]


async def known_blobs(conn: Connection, blobs: Sequence[int]) -> set[int]:
    """Return those of some names that stand for the bytes of an artifact."""
    return {row["blob"] for row in await conn.fetch(SQL["known_blobs"], list(blobs))}
