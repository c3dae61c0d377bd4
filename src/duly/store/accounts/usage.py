"""The books: what was used by whom, on which day and at which price.

Attempts are booked in the order of their numbers (`attempts.entry`), a range at a time, in
one transaction with the mark up to which that has been done. Whoever reads adds what lies
above the mark, in one statement. So an attempt is counted once, whenever one looks.
"""

from collections.abc import Collection, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import asyncpg
import msgspec

from duly.model.usage import Amounts, Place, Rates, Tariff, Urgency, Used
from duly.store.database import Connection, load_statements

SQL = load_statements("usage.sql")


class Marks(msgspec.Struct, frozen=True):
    """Up to which number attempts are booked, and the last number that was given out."""

    booked_to: int
    given: int


async def read_marks(conn: Connection) -> Marks:
    """Return how far the books are, and how far they could be."""
    (row,) = await conn.fetch(SQL["read_marks"])
    return Marks(row["booked_to"], row["given"])


async def draw_line(conn: Connection) -> int:
    """Return a transaction id above those of all who have drawn a number so far.

    The connection must be in no transaction: its own would never be over.
    """
    line: int = await conn.fetchval(SQL["draw_line"])
    return line


async def is_over(conn: Connection, line: int) -> bool:
    """Say whether all transactions below `line` have ended; ask the same server that drew it."""
    return bool(await conn.fetchval(SQL["is_over"], line))


async def lock_books(conn: Connection) -> int:
    """Keep others from booking until this transaction ends; return how far the books are."""
    booked_to: int = await conn.fetchval(SQL["lock_books"])
    return booked_to


async def book(conn: Connection, tariff: Tariff, *, above: int, up_to: int) -> None:
    """Book the attempts of a range of numbers; the books are locked and end at `above`."""
    bounds, urgencies, factors, free = _columns(tariff)
    await conn.execute(SQL["book"], above, up_to, bounds, urgencies, factors, free)
    await conn.execute(SQL["turn_page"], up_to)


async def raise_entries(conn: Connection) -> None:
    """Let no number be given out that counts as booked."""
    await conn.execute(SQL["raise_entries"])


async def read(
    conn: Connection,
    tariff: Tariff,
    *,
    tenants: Sequence[int],
    since: date,
    until: date,
    by: Collection[str],
    limit: int,
) -> list[Used]:
    """Return what tenants used from `since` to `until`, these days included, told apart by `by`.

    What was used at several prices comes in as many parts; `limit` counts parts.
    """
    bounds, urgencies, factors, free = _columns(tariff)
    apart = [name in by for name in ("day", "tenant", "user", "tier", "urgency")]
    rows = await conn.fetch(
        SQL["read"],
        list(tenants),
        since,
        until,
        *apart,
        bounds,
        urgencies,
        factors,
        free,
        limit,
    )
    return [_used(row) for row in rows]


class Key(NamedTuple):
    """What a line of the books is about, within a day."""

    tenant_id: int
    user_id: int | None
    tier: str | None
    urgency: str


class Line(msgspec.Struct, frozen=True):
    """A line of the books, and the lowest of the tasks that it speaks of."""

    amounts: Amounts
    first_task_id: int


class Page(msgspec.Struct, frozen=True):
    """A day of the books; its attempts have numbers above one and up to another."""

    day: date
    above: int
    up_to: int
    lines: dict[Key, Line]


async def read_page(conn: Connection) -> Page | None:
    """Return what is booked for yesterday; None if that is nothing."""
    rows = await conn.fetch(SQL["read_page"])
    if not rows:
        return None
    return Page(
        rows[0]["day"],
        min(row["above_entry"] for row in rows),
        max(row["last_entry"] for row in rows),
        {_key(row): Line(amounts_of(row), row["first_task_id"]) for row in rows},
    )


async def recount(
    conn: Connection, tariff: Tariff, *, day: date, above: int, up_to: int
) -> dict[Key, Amounts]:
    """Count attempts of a range of numbers again, those that ended on `day`."""
    bounds, urgencies, _, free = _columns(tariff)
    rows = await conn.fetch(SQL["recount"], above, up_to, day, bounds, urgencies, free)
    return {_key(row): amounts_of(row) for row in rows}


async def first_kept(conn: Connection) -> int:
    """Return the id below which history may be gone."""
    return int(await conn.fetchval(SQL["first_kept"]) or 0)


async def tenant_ids(conn: Connection) -> list[int]:
    """Return every tenant, those that were removed among them."""
    return [row["id"] for row in await conn.fetch(SQL["tenant_ids"])]


async def today(conn: Connection) -> date:
    """Return the day that it is, in UTC."""
    day: date = await conn.fetchval(SQL["today"])
    return day


async def drop(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Forget what was used on days that are older; return how many rows went."""
    answer = await conn.execute(SQL["drop_usage"], older_than, limit)
    return int(answer.rpartition(" ")[2])


def _columns(tariff: Tariff) -> tuple[list[timedelta], list[str], list[Decimal], list[str]]:
    """Return the parts of a tariff as the statements want them."""
    bands = tariff.bands
    return (
        [band.since for band in bands],
        [band.urgency.value for band in bands],
        [band.factor for band in bands],
        sorted(outcome.value for outcome in tariff.free),
    )


def _used(row: asyncpg.Record) -> Used:
    urgency = row["urgency"]
    return Used(
        Place(
            day=row["day"],
            tenant=row["tenant"],
            user=row["user"],
            tier=row["tier"],
            urgency=None if urgency is None else Urgency(urgency),
        ),
        Rates(**{name: row[name] for name in Rates.__struct_fields__}),
        row["factor"],
        amounts_of(row),
    )


def _key(row: asyncpg.Record) -> Key:
    return Key(*(row[name] for name in Key._fields))


def amounts_of(row: asyncpg.Record | dict[str, Any]) -> Amounts:
    """Return the amounts in a row."""
    return Amounts(**{name: int(row[name]) for name in Amounts.__struct_fields__})
