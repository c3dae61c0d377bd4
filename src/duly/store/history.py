"""Days of history: made ahead of time, and dropped as a whole."""

from datetime import timedelta

from duly.store.database import Connection, load_statements

SQL = load_statements("history.sql")


async def ensure_days(conn: Connection) -> None:
    """Make the partitions of the coming week."""
    await conn.execute(SQL["ensure_days"])


async def read_days(conn: Connection, *, older_than: timedelta) -> list[int]:
    """Return the days of history that are older, oldest first."""
    return [row["day"] for row in await conn.fetch(SQL["read_days"], older_than)]


async def drop_day(conn: Connection, day: int) -> None:
    """Drop a day of history; its tasks that are still live are kept."""
    await conn.execute(SQL["drop_day"], day)


async def read_survivors(conn: Connection, day: int) -> set[int]:
    """Return the tasks of `day` and before that are still live."""
    return {row["id"] for row in await conn.fetch(SQL["read_survivors"], day)}


async def drop_rest(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Forget tasks that outlived their day and ended that long ago; return how many."""
    return _count(await conn.execute(SQL["drop_rest"], older_than, limit))


async def drop_graphs(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Forget graphs that are that old and whose tasks are forgotten; return how many."""
    return _count(await conn.execute(SQL["drop_graphs"], older_than, limit))


async def drop_submissions(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Forget idempotency keys whose tasks ended that long ago; return how many."""
    return _count(await conn.execute(SQL["drop_submissions"], older_than, limit))


async def drop_leftovers(conn: Connection, *, older_than: timedelta) -> None:
    """Forget expired join tokens, and incarnations that ended that long ago."""
    await conn.execute(SQL["drop_tokens"])
    await conn.execute(SQL["drop_incarnations"], older_than)


def _count(answer: str) -> int:
    """Return how many rows PostgreSQL says that a statement has touched."""
    return int(answer.rpartition(" ")[2])
