"""Reads subqueues: the waiting tasks of one (tenant, shape), ordered by rank."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from duly.store.database import Connection, empty_if_all_none, load_statements
from duly.store.records import read_as

SQL = load_statements("subqueues.sql")


class Head(msgspec.Struct, frozen=True):
    """A waiting task at the head of its subqueue."""

    id: int
    tenant_id: int
    shape_id: int
    start_by: datetime
    priority: int
    remaining_path: int
    expected_run_time: timedelta
    """As learned from tasks of its name, or else its execution cap."""
    avoid_node_id: int | None
    delay_tolerance: timedelta
    """The smaller of its own tolerance and that of its downstream tasks."""
    losses: int
    run_time_bound: timedelta
    """Within which it ends: very likely, if that was learned, or else by its execution cap."""


class HeadRange(NamedTuple):
    """What to read of a subqueue: up to `most` tasks, from a start_by or a task on."""

    start_by: datetime
    most: int
    first: Head | None = None
    """The cursor: no task ranked before it is left. It need not exist any more."""


async def read_nonempty(conn: Connection) -> dict[tuple[int, int], datetime]:
    """Return the (tenant, shape) pairs with waiting tasks, and the earliest start_by of each."""
    rows = await conn.fetch(SQL["read_nonempty"])
    return {(row["tenant_id"], row["shape_id"]): row["start_by"] for row in rows}


async def read_heads(conn: Connection, ranges: Mapping[tuple[int, int], HeadRange]) -> list[Head]:
    """Return the first waiting tasks of every (tenant, shape), ordered by rank."""
    cursors = [span.first for span in ranges.values()]
    rows = await conn.fetch(
        SQL["read_heads"],
        [tenant for tenant, _ in ranges],
        [shape for _, shape in ranges],
        # Whole seconds, and so exact as floats; encoding them as timestamps takes twice as long.
        [(span.first or span).start_by.timestamp() for span in ranges.values()],
        # One task of each is the usual request, and the statement's default.
        empty_if_all_none([None if span.most == 1 else span.most for span in ranges.values()]),
        empty_if_all_none([head and head.priority for head in cursors]),
        empty_if_all_none([head and head.remaining_path for head in cursors]),
        empty_if_all_none([head and head.expected_run_time.total_seconds() for head in cursors]),
        empty_if_all_none([head and head.id for head in cursors]),
    )
    return read_as(Head, rows)
