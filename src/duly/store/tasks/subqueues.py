"""What waits, line by line: a line is what a tenant has of a shape, by rank."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from duly.store.database import Connection, load_statements, sparse
from duly.store.records import read_as

SQL = load_statements("waiting.sql")


class Head(msgspec.Struct, frozen=True):
    """A waiting task at the head of its line."""

    id: int
    tenant_id: int
    shape_id: int
    start_by: datetime
    priority: int
    remaining_path: int
    execution_cap: timedelta
    avoid_node_id: int | None
    delay_tolerance: timedelta
    """How long it may be put off, by itself and by those behind it."""
    losses: int


class Line(NamedTuple):
    """What is to be read of a (tenant, shape) pair: so many tasks, from a task or start_by on."""

    start_by: datetime
    most: int
    first: Head | None = None
    """A task before which all have gone, whether it is there or not."""


async def pairs_with_work(conn: Connection) -> dict[tuple[int, int], datetime]:
    """Return the (tenant, shape) pairs with waiting tasks, and by when the first must start."""
    rows = await conn.fetch(SQL["pairs_with_work"])
    return {(row["tenant_id"], row["shape_id"]): row["start_by"] for row in rows}


async def read_heads(conn: Connection, lines: Mapping[tuple[int, int], Line]) -> list[Head]:
    """Return the first waiting tasks of every pair, in the order of their rank."""
    first = [line.first for line in lines.values()]
    rows = await conn.fetch(
        SQL["read_heads"],
        [tenant for tenant, _ in lines],
        [shape for _, shape in lines],
        # To the second, and so exact as numbers; as times they take twice as long to send.
        [(line.first or line).start_by.timestamp() for line in lines.values()],
        # One of each is what there mostly is to ask for, and goes without saying.
        sparse([None if line.most == 1 else line.most for line in lines.values()]),
        sparse([one and one.priority for one in first]),
        sparse([one and one.remaining_path for one in first]),
        sparse([one and one.execution_cap.total_seconds() for one in first]),
        sparse([one and one.id for one in first]),
    )
    return read_as(Head, rows)
