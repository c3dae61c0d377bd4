"""What comes out of PostgreSQL is what went in."""

from datetime import timedelta

import asyncpg
import pytest

INTERVALS = ["0", "1 us", "-1 us", "1 day -1 hour", "-3 days", "25:00:00", "100000 hours"]
MONTHS = ["1 month", "13 months 2 days", "-1 month", "-25 months 1 hour", "2 years"]


@pytest.mark.parametrize("text", [*INTERVALS, *MONTHS])
async def test_an_interval_is_read_as_asyncpg_reads_it(conn, dsn, text):
    plain = await asyncpg.connect(dsn)
    try:
        asked = f"select interval '{text}'"
        assert await conn.fetchval(asked) == await plain.fetchval(asked)
    finally:
        await plain.close()


@pytest.mark.parametrize(
    "value",
    [
        timedelta(0),
        timedelta(microseconds=-1),
        timedelta(days=2, seconds=86399, microseconds=999999),
        timedelta(days=-2, hours=5),
        timedelta(days=36500),
    ],
)
async def test_an_interval_comes_back_as_it_was_sent(conn, value):
    assert await conn.fetchval("select $1::interval", value) == value
