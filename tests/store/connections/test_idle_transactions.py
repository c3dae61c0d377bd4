"""A server that was stopped in the middle of a transaction finds it gone, and says: try again."""

import asyncio

import pytest

from duly.errors import Unavailable


async def lose(lent):
    """Have a transaction ended for idleness, learn of it, and go on."""
    async with lent as conn:
        await conn.execute("set local idle_in_transaction_session_timeout = '1ms'")
        raw = conn._con
        while not raw.is_closed():
            await asyncio.sleep(0.001)
        await conn.fetch("select 1")


@pytest.mark.parametrize("lend", ["transaction", "reading_for", "writing_for"])
async def test_what_was_ended_for_idleness_is_an_outage_and_holds_no_place(database, lend):
    for _ in range(20):
        lent = database.transaction() if lend == "transaction" else getattr(database, lend)(1)
        with pytest.raises(Unavailable):
            await lose(lent)
    async with asyncio.timeout(10), database.reading_for(1) as conn:
        assert await conn.fetchval("select 1") == 1


async def test_one_that_is_lost_at_its_end_holds_no_place_either(database):
    for _ in range(20):
        async with database.reading_for(1) as conn:
            await conn.execute("set local idle_in_transaction_session_timeout = '1ms'")
            raw = conn._con
            while not raw.is_closed():
                await asyncio.sleep(0.001)
    async with asyncio.timeout(10), database.reading_for(1) as conn:
        assert await conn.fetchval("select 1") == 1
