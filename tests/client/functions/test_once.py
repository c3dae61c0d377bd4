"""An effect and its record are committed together in the application's database, or not at all."""

import asyncio
import sqlite3
from collections.abc import Iterator

import asyncpg
import pytest

from duly.client.functions import once
from duly.errors import Invalid


@pytest.fixture
def bank(tmp_path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "bank.db")
    connection.execute("create table payments (amount int)")
    yield connection
    connection.close()


def pay(connection: sqlite3.Connection) -> int:
    connection.execute("insert into payments values (10)")
    return 42


def payments(connection: sqlite3.Connection) -> int:
    return connection.execute("select count(*) from payments").fetchone()[0]


def test_a_committed_effect_is_not_repeated_and_its_result_is_kept(bank):
    for _ in range(3):
        with bank:
            assert once.run(bank, "7/charge", lambda: pay(bank)) == 42
    assert payments(bank) == 1


def test_a_record_is_rolled_back_with_its_effect(bank):
    once.run(bank, "7/charge", lambda: pay(bank))
    bank.rollback()
    assert payments(bank) == 0
    with bank:
        once.run(bank, "7/charge", lambda: pay(bank))
    assert payments(bank) == 1


def test_an_effect_that_fails_is_not_recorded_even_if_the_application_commits(bank):
    def refuse() -> int:
        raise OSError

    with bank, pytest.raises(OSError):
        once.run(bank, "7/charge", refuse)
    bank.commit()
    with bank:
        assert once.run(bank, "7/charge", lambda: pay(bank)) == 42


def test_a_connection_that_commits_each_statement_is_refused(bank):
    bank.isolation_level = None
    with pytest.raises(Invalid, match="autocommit"):
        once.run(bank, "7/charge", lambda: pay(bank))
    assert payments(bank) == 0


def test_something_else_than_a_connection_is_refused():
    with pytest.raises(Invalid, match="psycopg or sqlite3"):
        once.run(object(), "7/charge", lambda: None)


async def test_attempts_at_the_same_time_have_one_effect_in_postgresql(dsn):
    connections = [await asyncpg.connect(dsn) for _ in range(4)]
    await connections[0].execute("create table public.payments (amount int)")

    async def attempt(connection: asyncpg.Connection) -> int:
        async def charge() -> int:
            await connection.execute("insert into public.payments values (10)")
            return 42

        async with connection.transaction():
            return await once.run_async(connection, "7/charge", charge)

    assert await asyncio.gather(*map(attempt, connections)) == [42] * 4
    assert await connections[0].fetchval("select count(*) from public.payments") == 1
    with pytest.raises(Invalid, match="autocommit"):
        await once.run_async(connections[0], "8/charge", lambda: asyncio.sleep(0))
    for connection in connections:
        await connection.close()
