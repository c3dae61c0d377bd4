"""How values of PostgreSQL become Python's, where that is not as asyncpg does it by itself."""

from datetime import timedelta
from functools import lru_cache

import asyncpg
import msgspec

MONTH, YEAR = 30, 365
"""Days, where an interval has months: as asyncpg counts them."""


async def set_codecs(conn: asyncpg.Connection) -> None:
    """Let a connection read and write JSON as values, and intervals without delay."""
    for kind in ("json", "jsonb"):
        await conn.set_type_codec(
            kind,
            schema="pg_catalog",
            encoder=lambda value: msgspec.json.encode(value).decode(),
            decoder=msgspec.json.decode,
            format="text",
        )
    await conn.set_type_codec(
        "interval",
        schema="pg_catalog",
        encoder=_encode_interval,
        decoder=_decode_interval,
        format="tuple",
    )


def _encode_interval(value: timedelta) -> tuple[int, int, int]:
    return 0, value.days, value.seconds * 1_000_000 + value.microseconds


# Thousands of tasks have the same few caps and tolerances. To make each of them anew takes as
# long as all the rest of a task's row.
@lru_cache(maxsize=1024)
def _decode_interval(parts: tuple[int, int, int]) -> timedelta:
    months, days, microseconds = parts
    sign = -1 if months < 0 else 1
    years, months = divmod(abs(months), 12)
    return timedelta(days + sign * (years * YEAR + months * MONTH), 0, microseconds)
