"""Tries at passwords, counted for all servers together.

A name has so many tries, which come back one by one. All that is stored is when the last
of them will be back: whether there is one left follows from it, and one statement takes it.
"""

from datetime import timedelta

from duly.store.database import Connection, load_statements

SQL = load_statements("guesses.sql")


async def take(conn: Connection, name: bytes, *, tries: int, every: timedelta) -> timedelta | None:
    """Take a try; return how long it is until there is one, if there is none."""
    if await conn.fetchval(SQL["take"], name, every, tries * every):
        return None
    wait: timedelta | None = await conn.fetchval(SQL["wait"], name, every, tries * every)
    return max(wait or timedelta(0), timedelta(seconds=1))


async def give_back(conn: Connection, name: bytes, *, every: timedelta) -> None:
    """Give back the try of whoever had the right password."""
    await conn.execute(SQL["give_back"], name, every)


async def forget(conn: Connection) -> None:
    """Drop a few names that have all of their tries; more than are added by one try."""
    await conn.execute(SQL["forget"])
