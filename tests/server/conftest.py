"""One database for the tests of the components, emptied before each; a server that leads."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from duly import clock as machine_clock
from duly.config import Settings
from duly.store.database import Database
from tests.conftest import COPY, Maker, drop_database, with_database
from tests.server.lab import CLEAN, CLOCK, Clock, Lab, today
from tests.server.standby import Standby, open_standby
from tests.server.watch import Watch


async def execute(dsn: str, *statements: str) -> None:
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    for statement in statements:
        await conn.execute(statement)
    await conn.close()


@pytest.fixture(scope="session")
def shared_dsn(postgres: str) -> Iterator[str]:
    """A migrated database whose clock stands still until it is moved."""
    name = f"server_{os.getpid()}"
    asyncio.run(execute(postgres, f"create database {name} {COPY}"))
    dsn = with_database(postgres, name)
    asyncio.run(execute(dsn, CLOCK))
    yield dsn
    asyncio.run(drop_database(postgres, name))


@pytest.fixture(scope="session")
def sweeper(shared_dsn: str) -> Iterator[Maker]:
    """Who empties it: to know all its tables takes a new connection longer than to empty them."""
    sweeper = Maker(shared_dsn)
    sweeper.run("set search_path to duly")
    yield sweeper
    sweeper.close()


@pytest.fixture
def emptied_dsn(shared_dsn: str, sweeper: Maker) -> str:
    """The same database, with nothing in it."""
    sweeper.run(CLEAN)
    return shared_dsn


@pytest.fixture
def settings() -> Settings:
    """What the server is started with; a module may replace it."""
    return Settings()


@pytest.fixture
async def lab(
    emptied_dsn: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Lab]:
    """A server that leads, in an empty database."""
    conn = await asyncpg.connect(emptied_dsn, server_settings={"search_path": "duly"})
    clock = Clock(conn, today())
    await clock.set(clock.now)
    monkeypatch.setattr(machine_clock, "monotonic", clock.monotonic)
    async with await Database.connect(emptied_dsn) as database:
        lab = Lab(database, conn, clock, settings)
        await lab.begin()
        yield lab
    await conn.close()


@pytest.fixture
def watch(lab: Lab) -> Watch:
    """The lab's auditor, driven by hand."""
    return Watch(lab)


@pytest.fixture
async def standby(postgres: str) -> AsyncIterator[Standby]:
    """The standby that commits wait for, once it is lost."""
    async with open_standby(postgres) as standby:
        yield standby
