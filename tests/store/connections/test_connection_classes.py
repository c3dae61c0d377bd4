"""Nobody takes the connections of those whose lateness costs most."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.config import MIN_CONNECTIONS, DatabaseSettings
from duly.errors import Unavailable
from duly.store.connections import connection_classes
from duly.store.connections.connection_classes import (
    DUTY_CONNECTIONS,
    ConnectionClass,
    slots_per_class,
)
from duly.store.database import Database


@given(st.integers(MIN_CONNECTIONS, 1000))
def test_every_lane_has_a_share_and_the_loops_have_the_rest(connections):
    shared = slots_per_class(connections)
    assert shared.keys() == set(ConnectionClass) - {ConnectionClass.DUTY}
    assert min(shared.values()) >= 1
    assert sum(shared.values()) + DUTY_CONNECTIONS <= connections


async def test_duties_find_a_connection_when_everybody_else_waits(dsn, monkeypatch):
    monkeypatch.setattr(connection_classes, "ACQUIRE_TIMEOUT_SECONDS", 0.05)
    settings = DatabaseSettings(connections=MIN_CONNECTIONS)
    async with await Database.connect(dsn, settings) as database, AsyncExitStack() as taken:
        for lane, share in slots_per_class(MIN_CONNECTIONS).items():
            for _ in range(share):
                await taken.enter_async_context(database.connection(lane))
            with pytest.raises(Unavailable) as refused:
                await taken.enter_async_context(database.connection(lane))
            assert refused.value.retry_after == connection_classes.RETRY_AFTER
        for _ in range(DUTY_CONNECTIONS):
            conn = await taken.enter_async_context(database.connection())
            assert await conn.fetchval("select 1") == 1


async def test_a_turn_passes_on_however_it_ends(dsn, monkeypatch):
    monkeypatch.setattr(connection_classes, "ACQUIRE_TIMEOUT_SECONDS", 0.05)
    settings = DatabaseSettings(connections=MIN_CONNECTIONS)
    async with await Database.connect(dsn, settings) as database:
        for _ in range(10):
            with pytest.raises(ZeroDivisionError):
                async with database.connection(ConnectionClass.CLIENT):
                    raise ZeroDivisionError
            async with database.connection(ConnectionClass.CLIENT):
                waiting = asyncio.ensure_future(
                    database.connection(ConnectionClass.CLIENT).__aenter__()
                )
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
        async with database.connection(ConnectionClass.CLIENT) as conn:
            assert await conn.fetchval("select 1") == 1


async def test_a_tenant_that_waits_for_its_own_locks_leaves_connections_for_others(
    dsn, monkeypatch
):
    monkeypatch.setattr(connection_classes, "ACQUIRE_TIMEOUT_SECONDS", 0.05)
    async with await Database.connect(dsn) as database, AsyncExitStack() as taken:
        share = slots_per_class(DatabaseSettings().connections)[ConnectionClass.CLIENT]
        for _ in range(share):
            with suppress(Unavailable):
                await taken.enter_async_context(database.reading_for(1))
        async with database.reading_for(2) as conn:
            assert await conn.fetchval("select 1") == 1
