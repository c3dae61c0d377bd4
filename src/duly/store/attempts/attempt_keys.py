"""Keys of running attempts and the progress that they report, both stored in the live row."""

from duly.model.attempt_key import AttemptKey
from duly.model.progress import Progress
from duly.store.database import Connection, load_statements

SQL = load_statements("attempt_keys.sql")


async def register(
    conn: Connection, node_id: int, ref: tuple[int, int, int], digest: bytes
) -> bool:
    """Register a key for (task, attempt, token); False if the node does not hold that lease."""
    return await conn.fetchval(SQL["register"], node_id, *ref, digest) is not None


async def is_valid(conn: Connection, key: AttemptKey) -> bool:
    """Return True if the key belongs to an attempt that still runs."""
    return bool(await conn.fetchval(SQL["is_valid"], key.task, key.attempt, key.token, key.digest))


async def record_progress(conn: Connection, key: AttemptKey, progress: Progress) -> bool:
    """Store the attempt's progress; False if the key is no longer valid."""
    return (
        await conn.fetchval(
            SQL["record_progress"],
            key.task,
            key.attempt,
            key.token,
            key.digest,
            progress.fraction,
            progress.text,
        )
        is not None
    )
