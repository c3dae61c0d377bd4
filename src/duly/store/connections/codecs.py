"""Type codecs that differ from asyncpg's defaults: JSON as values, and cached intervals."""

from datetime import timedelta
from functools import lru_cache

import asyncpg
import msgspec

DAYS_PER_MONTH, DAYS_PER_YEAR = 30, 365
"""asyncpg's own conversion of an interval's months."""


async def set_codecs(conn: asyncpg.Connection) -> None:
    """Install the codecs for json, jsonb and interval on a connection."""
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


# Thousands of tasks share the same few caps and tolerances. Building each timedelta anew takes as
# long as decoding the rest of a task's row.
@lru_cache(maxsize=1024)
def _decode_interval(parts: tuple[int, int, int]) -> timedelta:
    months, days, microseconds = parts
    sign = -1 if months < 0 else 1
    years, months = divmod(abs(months), 12)
    return timedelta(
        days + sign * (years * DAYS_PER_YEAR + months * DAYS_PER_MONTH), 0, microseconds
    )
