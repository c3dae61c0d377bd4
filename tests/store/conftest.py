"""A connection to a fresh database, whose clock can be set ahead."""

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from duly.config import DatabaseSettings
from duly.store.database import _initialize, _server_settings

MOVABLE = """
create table duly.ahead (by interval not null);
grant select on duly.ahead to public;
insert into duly.ahead values ('0 s');
create or replace function duly.now() returns timestamptz
    language sql volatile
    as 'select clock_timestamp() + by from duly.ahead';
"""


@pytest.fixture
async def connect(dsn) -> AsyncIterator[Callable[[], Awaitable[asyncpg.Connection]]]:
    """Open connections as the server does, closed after the test."""
    opened = []

    async def open_one() -> asyncpg.Connection:
        conn = await asyncpg.connect(dsn, server_settings=_server_settings(DatabaseSettings()))
        await _initialize(conn)
        opened.append(conn)
        return conn

    yield open_one
    for conn in opened:
        await conn.close()


@pytest.fixture
async def conn(connect) -> asyncpg.Connection:
    """One connection, to a database with a clock that `set_ahead` moves."""
    conn = await connect()
    await conn.execute(MOVABLE)
    return conn


@pytest.fixture
def set_ahead(conn) -> Callable[[str], Awaitable[None]]:
    """Move PostgreSQL's clock, as Duly sees it."""

    async def move(by: str) -> None:
        await conn.execute(f"update duly.ahead set by = interval '{by}'")

    return move
