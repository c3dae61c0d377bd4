"""The usage ledger: usage by tenant, user, tier, urgency, day and price.

Attempts are recorded in the order of their numbers (`attempts.entry`), a range at a time, in one
transaction with the watermark. A read adds the attempts above the watermark in the same statement,
so every attempt is counted exactly once at any time.
"""

from collections.abc import Collection, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import asyncpg
import msgspec

from duly.model.usage import Amounts, Rates, Tariff, Urgency, UsageDimensions, UsageRecord
from duly.store.database import Connection, load_statements

SQL = load_statements("usage.sql")


class UsageWatermarks(msgspec.Struct, frozen=True):
    """The highest entry recorded in the ledger, and the last entry drawn from the sequence."""

    booked_to: int
    given: int


async def read_watermarks(conn: Connection) -> UsageWatermarks:
    """Return how far the ledger is, and how far it could be."""
    (row,) = await conn.fetch(SQL["read_watermarks"])
    return UsageWatermarks(row["booked_to"], row["given"])


async def next_transaction_id(conn: Connection) -> int:
    """Return a transaction id above those of all transactions that have drawn an entry so far.

    The connection must not be in a transaction: its own would never end.
    """
    xid: int = await conn.fetchval(SQL["next_transaction_id"])
    return xid


async def have_ended_before(conn: Connection, xid: int) -> bool:
    """Return True if all transactions below `xid` have ended; ask the host that assigned it."""
    return bool(await conn.fetchval(SQL["have_ended_before"], xid))


async def lock_ledger(conn: Connection) -> int:
    """Lock the ledger until the transaction ends; return its watermark."""
    booked_to: int = await conn.fetchval(SQL["lock_ledger"])
    return booked_to


async def record(conn: Connection, tariff: Tariff, *, above: int, up_to: int) -> None:
    """Record a range of attempts; the ledger is locked and its watermark is `above`."""
    bounds, urgencies, factors, free = _columns(tariff)
    await conn.execute(SQL["record"], above, up_to, bounds, urgencies, factors, free)
    await conn.execute(SQL["advance_watermark"], up_to)


async def advance_entry_sequence(conn: Connection) -> None:
    """Move the sequence above the watermark, in case a failover lost its end."""
    await conn.execute(SQL["advance_entry_sequence"])


async def read(
    conn: Connection,
    tariff: Tariff,
    *,
    tenants: Sequence[int],
    since: date,
    until: date,
    by: Collection[str],
    limit: int,
) -> list[UsageRecord]:
    """Return tenants' usage from `since` to `until` inclusive, grouped by `by`.

    Usage at different prices comes in separate rows; `limit` counts rows.
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


class LedgerKey(NamedTuple):
    """The dimensions of a ledger line within a day."""

    tenant_id: int
    user_id: int | None
    tier: str | None
    urgency: str


class LedgerLine(msgspec.Struct, frozen=True):
    """The amounts of a ledger line, and the lowest task id that it includes."""

    amounts: Amounts
    first_task_id: int


class LedgerDay(msgspec.Struct, frozen=True):
    """A day of the ledger; its attempts' entries are in (`above`, `up_to`]."""

    day: date
    above: int
    up_to: int
    lines: dict[LedgerKey, LedgerLine]


async def read_yesterday(conn: Connection) -> LedgerDay | None:
    """Return the ledger of yesterday; None if it is empty."""
    rows = await conn.fetch(SQL["read_yesterday"])
    if not rows:
        return None
    return LedgerDay(
        rows[0]["day"],
        min(row["above_entry"] for row in rows),
        max(row["last_entry"] for row in rows),
        {_key(row): LedgerLine(amounts_of(row), row["first_task_id"]) for row in rows},
    )


async def recount(
    conn: Connection, tariff: Tariff, *, day: date, above: int, up_to: int
) -> dict[LedgerKey, Amounts]:
    """Recount the attempts of a range of entries that ended on `day`."""
    bounds, urgencies, _, free = _columns(tariff)
    rows = await conn.fetch(SQL["recount"], above, up_to, day, bounds, urgencies, free)
    return {_key(row): amounts_of(row) for row in rows}


async def first_retained_id(conn: Connection) -> int:
    """Return the id below which history may have been dropped."""
    return int(await conn.fetchval(SQL["first_retained_id"]) or 0)


async def tenant_ids(conn: Connection) -> list[int]:
    """Return all tenants, including removed ones."""
    return [row["id"] for row in await conn.fetch(SQL["tenant_ids"])]


async def today(conn: Connection) -> date:
    """Return the current day in UTC."""
    day: date = await conn.fetchval(SQL["today"])
    return day


async def drop(conn: Connection, *, older_than: timedelta, limit: int) -> int:
    """Delete usage of older days; return the number of rows."""
    answer = await conn.execute(SQL["drop_usage"], older_than, limit)
    return int(answer.rpartition(" ")[2])


def _columns(tariff: Tariff) -> tuple[list[timedelta], list[str], list[Decimal], list[str]]:
    """Return the parts of a tariff as the statements want them."""
    bands = tariff.bands
    return (
        [band.min_tolerance for band in bands],
        [band.urgency.value for band in bands],
        [band.factor for band in bands],
        sorted(outcome.value for outcome in tariff.free),
    )


def _used(row: asyncpg.Record) -> UsageRecord:
    urgency = row["urgency"]
    return UsageRecord(
        UsageDimensions(
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


def _key(row: asyncpg.Record) -> LedgerKey:
    return LedgerKey(*(row[name] for name in LedgerKey._fields))


def amounts_of(row: asyncpg.Record | dict[str, Any]) -> Amounts:
    """Return the amounts in a row."""
    return Amounts(**{name: int(row[name]) for name in Amounts.__struct_fields__})
