"""A token bucket per user name for password attempts, shared by all servers.

Only the time at which the bucket will be full again is stored; the tokens left follow from it, and
one statement takes one (the generic cell rate algorithm).
"""

from datetime import timedelta

from duly.store.database import Connection, load_statements

SQL = load_statements("login_throttle.sql")


async def acquire(
    conn: Connection, name: bytes, *, tries: int, every: timedelta
) -> timedelta | None:
    """Take an attempt and return None, or return how long to wait for the next one."""
    if await conn.fetchval(SQL["acquire"], name, every, tries * every):
        return None
    wait: timedelta | None = await conn.fetchval(SQL["wait"], name, every, tries * every)
    return max(wait or timedelta(0), timedelta(seconds=1))


async def refund(conn: Connection, name: bytes, *, every: timedelta) -> None:
    """Return the attempt after a correct password."""
    await conn.execute(SQL["refund"], name, every)


async def prune(conn: Connection) -> None:
    """Delete some full buckets; more than one attempt adds."""
    await conn.execute(SQL["prune"])
