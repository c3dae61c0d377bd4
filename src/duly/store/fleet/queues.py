"""Reads and writes of queues, and of the figures about them."""

from collections.abc import Collection
from datetime import datetime, time, timedelta
from typing import Any

import msgspec

from duly.model.queues.queue import OpeningHours, QueueDefinition, QueueDefinitions
from duly.model.shape import Shape
from duly.store.database import Connection, load_statements

SQL = load_statements("queues.sql")
RATE_PERIOD = timedelta(minutes=1)
"""The period over which the rates in and out are counted."""
MAX_RATE_ROWS = 20_000
"""Of a busy fleet the rates are counted over fewer seconds, in which so many tasks came or went."""
MAX_NAMED_SCHEDULES = 5
"""The schedules that are named when a queue cannot be removed."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it is stored."""

    name: str
    level: int
    off_peak: bool
    max_share: float | None
    opens_at: time | None
    closes_at: time | None
    timezone: str
    paused_at: datetime | None
    paused_by: str | None

    @property
    def definition(self) -> QueueDefinition:
        """Return the queue."""
        hours = None
        if self.opens_at is not None and self.closes_at is not None:
            hours = OpeningHours(self.opens_at, self.closes_at, self.timezone)
        return QueueDefinition(
            name=self.name,
            level=self.level,
            off_peak=self.off_peak,
            max_share=self.max_share,
            hours=hours,
            paused_at=self.paused_at,
            paused_by=self.paused_by,
        )


class PromotionTerms(msgspec.Struct, frozen=True):
    """What decides about the queue of a retry."""

    queues: QueueDefinitions
    allowed: dict[int, tuple[str, ...] | None]
    """By tenant, the queues that its plan includes; None is all."""
    shapes: dict[int, Shape]
    now: datetime


class QueueUsers(msgspec.Struct, frozen=True):
    """What keeps a queue from being removed."""

    tasks: int
    """Live tasks in it, up to 100,000."""
    plans: list[str]
    """The plans that include it."""
    schedules: list[str]
    """The names, or else ids, of some schedules that ask for it."""


class QueueFigures(msgspec.Struct, frozen=True):
    """The tasks that wait in a queue, and how many come and go."""

    waiting: int = 0
    oldest_wait: float | None = None
    """In seconds; None if no task waits."""
    in_per_minute: float = 0.0
    out_per_minute: float = 0.0


NO_FIGURES = QueueFigures()


def decode(rows: str) -> QueueDefinitions:
    """Return the queues from rows of the table as JSON."""
    decoded = msgspec.json.decode(rows, type=list[QueueRow])
    return QueueDefinitions(row.definition for row in decoded)


async def read(conn: Connection) -> QueueDefinitions:
    """Return all queues."""
    rows = [QueueRow(**row) for row in await conn.fetch(SQL["read"])]
    return QueueDefinitions(row.definition for row in rows)


async def lock(conn: Connection) -> QueueDefinitions:
    """Return all queues, and let no other transaction change them until the commit."""
    await conn.execute(SQL["lock"])
    return await read(conn)


async def add(conn: Connection, queue: QueueDefinition) -> None:
    """Store a new queue, whose name is free."""
    await conn.execute(SQL["add"], *_values(queue))


async def change(conn: Connection, queue: QueueDefinition) -> None:
    """Store the new values of a queue."""
    await conn.execute(SQL["change"], *_values(queue))


async def set_paused(conn: Connection, name: str, by: str | None) -> None:
    """Pause a queue on behalf of an actor, or resume it."""
    await conn.execute(SQL["set_paused"], name, by)


async def remove(conn: Connection, name: str) -> None:
    """Remove a queue."""
    await conn.execute(SQL["remove"], name)


async def read_users(conn: Connection, name: str) -> QueueUsers:
    """Return the live tasks of a queue, and the plans and schedules that name it."""
    row = await conn.fetchrow(SQL["read_users"], name, MAX_NAMED_SCHEDULES)
    return msgspec.convert(dict(row or {}), QueueUsers)


async def read_promotion_terms(
    conn: Connection, tenants: Collection[int], shapes: Collection[int]
) -> PromotionTerms:
    """Return the queues, which of them the plans of tenants include, and shapes by id."""
    row = await conn.fetchrow(SQL["read_promotion_terms"], list(tenants), list(shapes))
    assert row is not None  # noqa: S101 -- the statement always returns one row
    allowed = msgspec.json.decode(
        row["allowed"] or "{}", type=dict[int, tuple[str, ...] | None], strict=False
    )
    found = msgspec.json.decode(row["shapes"] or "{}", type=dict[int, Shape], strict=False)
    return PromotionTerms(decode(row["queues"]), allowed, found, row["now"])


async def read_figures(conn: Connection, tenant_id: int | None) -> dict[str, QueueFigures]:
    """Count the waiting tasks and the rates of each queue, of one tenant or of all."""
    rows = await conn.fetch(SQL["read_figures"], tenant_id, RATE_PERIOD, MAX_RATE_ROWS)
    return {
        row["name"]: QueueFigures(
            row["waiting"], row["oldest_wait"], row["in_per_minute"], row["out_per_minute"]
        )
        for row in rows
    }


def _values(queue: QueueDefinition) -> tuple[Any, ...]:
    hours = queue.hours
    return (
        queue.name,
        queue.level,
        queue.off_peak,
        queue.max_share,
        None if hours is None else hours.opens,
        None if hours is None else hours.closes,
        "UTC" if hours is None else hours.timezone,
    )
