"""Who speaks for a running attempt, and what it says: in the live row, and gone with it."""

from duly.model.attempt_key import AttemptKey
from duly.model.progress import Progress
from duly.store.database import Connection, load_statements

SQL = load_statements("attempt_keys.sql")


async def register(
    conn: Connection, node_id: int, ref: tuple[int, int, int], digest: bytes
) -> bool:
    """Let a key speak for (task, attempt, token); False when that is not this node's to run."""
    return await conn.fetchval(SQL["register"], node_id, *ref, digest) is not None


async def is_good(conn: Connection, key: AttemptKey) -> bool:
    """Say whether the key speaks for an attempt that runs."""
    return bool(await conn.fetchval(SQL["is_good"], key.task, key.attempt, key.token, key.digest))


async def say(conn: Connection, key: AttemptKey, progress: Progress) -> bool:
    """Keep how far the attempt has come; False when the key does not speak for it any more."""
    return (
        await conn.fetchval(
            SQL["say"],
            key.task,
            key.attempt,
            key.token,
            key.digest,
            progress.fraction,
            progress.text,
        )
        is not None
    )
