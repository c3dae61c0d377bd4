"""Writes of the self-audit: each looks again under the lock, and does nothing if all is well."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from duly.store.database import Connection, load_statements
from duly.store.leases import Held

SQL = load_statements("repairs.sql")
MOST_TOKENS = 1_000_000


async def lock_orphan(conn: Connection, task_id: int, token: int) -> Held | None:
    """Lock a running attempt whose agent has ended; None when it is no such one any more."""
    row = await conn.fetchrow(SQL["lock_orphan"], task_id, token)
    return None if row is None else msgspec.convert(dict(row), Held)


async def remove_live(conn: Connection, task_id: int) -> bool:
    """Remove the live row of a task that has ended."""
    return await conn.fetchval(SQL["remove_live"], task_id) is not None


async def copy_from_task(conn: Connection, task_id: int) -> bool:
    """Let a live row ask for what its task asks for; call it in a transaction."""
    if await conn.fetchval(SQL["lock_live"], task_id) is None:
        return False
    return await conn.fetchval(SQL["copy_from_task"], task_id) is not None


async def release(conn: Connection, task_id: int, *, late: timedelta) -> bool:
    """Let a task wait for its turn whose time came so long ago."""
    return await conn.fetchval(SQL["release"], task_id, late) is not None


async def advance_tokens(conn: Connection, task_id: int) -> bool:
    """Bring the sequence of tokens to that of a task which is ahead of it."""
    return await conn.fetchval(SQL["advance_tokens"], task_id, MOST_TOKENS) is not None


async def raise_mark(conn: Connection, task_id: int) -> bool:
    """Bring the mark of a server to an id that was minted above it."""
    return await conn.fetchval(SQL["raise_mark"], task_id) is not None


async def recount(conn: Connection, task_id: int) -> bool:
    """Let a task wait for as many as it should; call it in a transaction.

    It ends if one of them has ended in another way than it waits for. If nobody knows any more
    how one of them ended, it is left alone.
    """
    if await conn.fetchval(SQL["lock_live"], task_id) is None:
        return False
    awaited = await conn.fetchrow(SQL["read_awaited"], task_id)
    if awaited is None or awaited["is_unknown"]:
        return False
    if awaited["doomed_by"] is not None:
        ended = await conn.fetchval(SQL["end_doomed"], task_id, awaited["doomed_by"])
        return ended is not None
    return await conn.fetchval(SQL["set_blocked_by"], task_id, awaited["open"]) is not None


async def end_agents(conn: Connection, node_id: int) -> bool:
    """End the incarnations of a node that must not be alive; call it in a transaction."""
    is_removed = await conn.fetchval(SQL["lock_node"], node_id)
    if is_removed is None:
        return False
    return bool(await conn.fetch(SQL["end_agents"], node_id, is_removed))


async def restore(conn: Connection, task_id: int) -> bool:
    """Let a task live again that was neither live nor ended; call it in a transaction."""
    if await conn.fetchval(SQL["lock_task"], task_id) is None:
        return False
    return await conn.fetchval(SQL["restore"], task_id) is not None


async def remove_letter(conn: Connection, task_id: int) -> bool:
    """Take a task out of the dead letters that has not failed."""
    return await conn.fetchval(SQL["remove_letter"], task_id) is not None


async def note(conn: Connection, task_id: int, details: Mapping[str, str]) -> None:
    """Note that something about a task was repaired."""
    await conn.execute(SQL["note"], task_id, details)
