"""Nobody takes the connections of those whose lateness costs most."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.config import FEWEST_CONNECTIONS, DatabaseSettings
from duly.errors import Unavailable
from duly.store import lanes
from duly.store.database import Database
from duly.store.lanes import LOOPS, Lane, shares


@given(st.integers(FEWEST_CONNECTIONS, 1000))
def test_every_lane_has_a_share_and_the_loops_have_the_rest(connections):
    shared = shares(connections)
    assert shared.keys() == set(Lane) - {Lane.DUTY}
    assert min(shared.values()) >= 1
    assert sum(shared.values()) + LOOPS <= connections


async def test_duties_find_a_connection_when_everybody_else_waits(dsn, monkeypatch):
    monkeypatch.setattr(lanes, "PATIENCE", 0.05)
    settings = DatabaseSettings(connections=FEWEST_CONNECTIONS)
    async with await Database.connect(dsn, settings) as database, AsyncExitStack() as taken:
        for lane, share in shares(FEWEST_CONNECTIONS).items():
            for _ in range(share):
                await taken.enter_async_context(database.connection(lane))
            with pytest.raises(Unavailable) as refused:
                await taken.enter_async_context(database.connection(lane))
            assert refused.value.retry_after == lanes.RETRY_AFTER
        for _ in range(LOOPS):
            conn = await taken.enter_async_context(database.connection())
            assert await conn.fetchval("select 1") == 1


async def test_a_turn_passes_on_however_it_ends(dsn, monkeypatch):
    monkeypatch.setattr(lanes, "PATIENCE", 0.05)
    settings = DatabaseSettings(connections=FEWEST_CONNECTIONS)
    async with await Database.connect(dsn, settings) as database:
        for _ in range(10):
            with pytest.raises(ZeroDivisionError):
                async with database.connection(Lane.GUEST):
                    raise ZeroDivisionError
            async with database.connection(Lane.GUEST):
                waiting = asyncio.ensure_future(database.connection(Lane.GUEST).__aenter__())
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        async with database.connection(Lane.GUEST) as conn:
            assert await conn.fetchval("select 1") == 1


async def test_a_tenant_that_waits_for_its_own_locks_leaves_connections_for_others(
    dsn, monkeypatch
):
    monkeypatch.setattr(lanes, "PATIENCE", 0.05)
    async with await Database.connect(dsn) as database, AsyncExitStack() as taken:
        share = shares(DatabaseSettings().connections)[Lane.GUEST]
        for _ in range(share):
            with suppress(Unavailable):
                await taken.enter_async_context(database.reading_for(1))
        async with database.reading_for(2) as conn:
            assert await conn.fetchval("select 1") == 1
