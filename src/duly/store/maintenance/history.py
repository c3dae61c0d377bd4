"""Retention of history: daily partitions, created ahead of time and dropped as a whole.

Tenants whose plans keep less than the whole history have their tasks deleted earlier.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from duly.store.database import Connection, load_statements
from duly.store.records import read_as

SQL = load_statements("history.sql")


class RetentionCutoff(msgspec.Struct, frozen=True):
    """A tenant that keeps only tasks that ended on `day` or later."""

    tenant_id: int
    day: int
    end_id: int
    """The first id of that day: tasks below it are candidates for deletion."""


class AgedTask(msgspec.Struct, frozen=True):
    """A task that was submitted before the first `day` that its tenant keeps."""

    tenant_id: int
    day: int
    id: int


class DeletedTask(msgspec.Struct, frozen=True):
    """A deleted task, whose logs are still to be deleted."""

    id: int
    graph_id: int | None
    has_run: bool


async def ensure_days(conn: Connection) -> None:
    """Create the partitions of the coming week."""
    await conn.execute(SQL["ensure_days"])


async def read_days(conn: Connection, *, older_than: timedelta) -> list[int]:
    """Return the days of history older than this, oldest first."""
    return [row["day"] for row in await conn.fetch(SQL["read_days"], older_than)]


async def drop_day(conn: Connection, day: int) -> None:
    """Drop a day of history; its tasks that are still live are kept."""
    await conn.execute(SQL["drop_day"], day)


async def read_survivors(conn: Connection, day: int) -> set[int]:
    """Return the tasks of `day` and before that are still live."""
    return {row["id"] for row in await conn.fetch(SQL["read_survivors"], day)}


async def drop_outlived(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Delete tasks that outlived their partition and ended this long ago; return how many."""
    return _count(await conn.execute(SQL["drop_outlived"], older_than, limit))


async def read_cutoffs(conn: Connection, *, history: timedelta) -> list[RetentionCutoff]:
    """Return the tenants whose plans keep less than `history`."""
    return read_as(RetentionCutoff, await conn.fetch(SQL["read_cutoffs"], history))


async def read_aged(
    conn: Connection, tenants: Sequence[RetentionCutoff], first_ids: Sequence[int], *, limit: int
) -> list[AgedTask]:
    """Return candidates for deletion, from an id on for each tenant, in the order of tenants."""
    rows = await conn.fetch(
        SQL["read_aged"],
        [cutoff.tenant_id for cutoff in tenants],
        first_ids,
        [cutoff.day for cutoff in tenants],
        limit,
    )
    return read_as(AgedTask, rows)


async def delete_aged(conn: Connection, aged: Sequence[AgedTask]) -> list[DeletedTask]:
    """Delete the tasks that ended before their cutoff, unless they are still needed."""
    if not aged:
        return []
    ids = [task.id for task in aged]
    rows = await conn.fetch(
        SQL["delete_aged"], ids, [task.day for task in aged], min(ids), max(ids)
    )
    forgotten = read_as(DeletedTask, rows)
    graphs = sorted({task.graph_id for task in forgotten if task.graph_id is not None})
    if graphs:
        await conn.execute(SQL["drop_graphs_of"], graphs)
    return forgotten


async def drop_graphs(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Delete graphs of this age whose tasks are deleted; return how many."""
    return _count(await conn.execute(SQL["drop_graphs"], older_than, limit))


async def drop_submissions(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Delete idempotency keys whose tasks ended this long ago; return how many."""
    await conn.execute(SQL["note_ends"], older_than, limit)
    return _count(await conn.execute(SQL["drop_submissions"], older_than, limit))


async def drop_leftovers(conn: Connection, *, older_than: timedelta) -> None:
    """Delete expired join tokens, and incarnations that ended this long ago."""
    await conn.execute(SQL["drop_tokens"])
    await conn.execute(SQL["drop_incarnations"], older_than)


def _count(command_tag: str) -> int:
    """Return the number of rows in a command tag such as `DELETE 5`."""
    return int(command_tag.rpartition(" ")[2])
