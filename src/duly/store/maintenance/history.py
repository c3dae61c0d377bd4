"""Days of history: made ahead of time, and dropped as a whole; and what goes before its day."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from duly.store.database import Connection, load_statements
from duly.store.records import read_as

SQL = load_statements("history.sql")


class Retained(msgspec.Struct, frozen=True):
    """A tenant that keeps what ended on `day` or later, and nothing else."""

    tenant_id: int
    day: int
    end_id: int
    """The first id of that day: what it has that is lower may have to go."""


class Aged(msgspec.Struct, frozen=True):
    """A task that was submitted before the first `day` that its tenant keeps."""

    tenant_id: int
    day: int
    id: int


class Forgotten(msgspec.Struct, frozen=True):
    """A task that nobody knows any more, but for what it has left in the logbook."""

    id: int
    graph_id: int | None
    has_run: bool


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


async def read_retained(conn: Connection, *, history: timedelta) -> list[Retained]:
    """Return the tenants whose plans keep less than `history`."""
    return read_as(Retained, await conn.fetch(SQL["read_retained"], history))


async def read_aged(
    conn: Connection, tenants: Sequence[Retained], first_ids: Sequence[int], *, limit: int
) -> list[Aged]:
    """Return tasks of tenants that may be too old, each tenant's from an id on, in their order."""
    rows = await conn.fetch(
        SQL["read_aged"],
        [one.tenant_id for one in tenants],
        first_ids,
        [one.day for one in tenants],
        limit,
    )
    return read_as(Aged, rows)


async def forget(conn: Connection, aged: Sequence[Aged]) -> list[Forgotten]:
    """Forget those of some tasks that ended before their day, unless somebody needs them."""
    if not aged:
        return []
    ids = [one.id for one in aged]
    rows = await conn.fetch(SQL["forget"], ids, [one.day for one in aged], min(ids), max(ids))
    forgotten = read_as(Forgotten, rows)
    graphs = sorted({one.graph_id for one in forgotten if one.graph_id is not None})
    if graphs:
        await conn.execute(SQL["drop_graphs_of"], graphs)
    return forgotten


async def drop_graphs(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Forget graphs that are that old and whose tasks are forgotten; return how many."""
    return _count(await conn.execute(SQL["drop_graphs"], older_than, limit))


async def drop_submissions(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Forget idempotency keys whose tasks ended that long ago; return how many."""
    await conn.execute(SQL["note_ends"], older_than, limit)
    return _count(await conn.execute(SQL["drop_submissions"], older_than, limit))


async def drop_leftovers(conn: Connection, *, older_than: timedelta) -> None:
    """Forget expired join tokens, and incarnations that ended that long ago."""
    await conn.execute(SQL["drop_tokens"])
    await conn.execute(SQL["drop_incarnations"], older_than)


def _count(answer: str) -> int:
    """Return how many rows PostgreSQL says that a statement has touched."""
    return int(answer.rpartition(" ")[2])
