"""Repairs of the self-audit: each checks again under the lock, and does nothing if all is well."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from duly.store.attempts.leases import LockedAttempt
from duly.store.database import Connection, load_statements

SQL = load_statements("repairs.sql")
MAX_TOKEN_ADVANCE = 1_000_000


async def lock_orphan(conn: Connection, task_id: int, token: int) -> LockedAttempt | None:
    """Lock a running attempt whose agent has ended; None if it no longer is one."""
    row = await conn.fetchrow(SQL["lock_orphan"], task_id, token)
    return None if row is None else msgspec.convert(dict(row), LockedAttempt)


async def remove_live(conn: Connection, task_id: int) -> bool:
    """Remove the live row of a task that has ended."""
    return await conn.fetchval(SQL["remove_live"], task_id) is not None


async def copy_from_task(conn: Connection, task_id: int) -> bool:
    """Copy a task's specification to its live row; call it in a transaction."""
    if await conn.fetchval(SQL["lock_live"], task_id) is None:
        return False
    return await conn.fetchval(SQL["copy_from_task"], task_id) is not None


async def release(conn: Connection, task_id: int, *, late: timedelta) -> bool:
    """Move a task that has been due for this long from scheduled to waiting."""
    return await conn.fetchval(SQL["release"], task_id, late) is not None


async def advance_tokens(conn: Connection, task_id: int) -> bool:
    """Advance the token sequence to the token of a task that is ahead of it."""
    return await conn.fetchval(SQL["advance_tokens"], task_id, MAX_TOKEN_ADVANCE) is not None


async def raise_high_water(conn: Connection, task_id: int) -> bool:
    """Raise a server's high-water mark to an id that was generated above it."""
    return await conn.fetchval(SQL["raise_high_water"], task_id) is not None


async def recount(conn: Connection, task_id: int) -> bool:
    """Recount the upstreams that a task waits for; call it in a transaction.

    The task ends if an upstream's end does not meet its condition. It is left alone if the end of
    an upstream is no longer known.
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
    """Restore the live row of a task that was neither live nor ended; call it in a transaction."""
    if await conn.fetchval(SQL["lock_task"], task_id) is None:
        return False
    return await conn.fetchval(SQL["restore"], task_id) is not None


async def remove_dead_letter(conn: Connection, task_id: int) -> bool:
    """Remove a task that has not failed from the dead letters."""
    return await conn.fetchval(SQL["remove_dead_letter"], task_id) is not None


async def record_repair(conn: Connection, task_id: int, details: Mapping[str, str]) -> None:
    """Add an event about a repair to a task's history."""
    await conn.execute(SQL["record_repair"], task_id, details)
