"""The pair of PostgreSQL servers fails over without losing acknowledged commits."""

import asyncio
import threading
import time
from datetime import UTC, datetime

import asyncpg
import pytest

from tests.torture import clocks
from tests.torture.network import Network
from tests.torture.postgres import PostgresPair
from tests.torture.processes import until
from tests.torture.proxy import Behaviour

pytestmark = [pytest.mark.faults]


@pytest.fixture
def pair(network: Network, postgres: PostgresPair) -> PostgresPair:
    network.host("client")
    execute(network, postgres, "create schema if not exists duly")
    execute(network, postgres, "drop table if exists duly.notes")
    execute(network, postgres, "create table duly.notes (n int)")
    return postgres


def execute(network: Network, pair: PostgresPair, statement: str) -> list[asyncpg.Record]:
    """Run a statement as a client in the network would."""

    async def run() -> list[asyncpg.Record]:
        conn = await asyncpg.connect(pair.primary.dsn, timeout=5)
        try:
            return await conn.fetch(statement, timeout=30)
        finally:
            conn.terminate()

    with network.host("client").entered():
        return asyncio.run(run())


def notes(network: Network, pair: PostgresPair) -> list[int]:
    return [row["n"] for row in execute(network, pair, "select n from duly.notes order by n")]


def test_the_two_servers_can_fail_over_repeatedly(network: Network, pair: PostgresPair) -> None:
    for number in (1, 2):
        execute(network, pair, f"insert into duly.notes values ({number})")
        old, new = pair.primary, pair.standby
        network.isolate(old.name)
        pair.promote()
        assert (pair.primary, pair.standby) == (new, old)
        assert notes(network, pair) == list(range(1, number + 1))
        network.heal()
        pair.rebuild_standby()
    pair.kill(pair.primary.name)
    pair.revive()
    assert notes(network, pair) == [1, 2]


def test_a_commit_waits_for_the_standby_and_can_be_cancelled(
    network: Network, pair: PostgresPair
) -> None:
    pair.kill(pair.standby.name)
    insert = "insert into duly.notes values (1)"
    waiting = threading.Thread(target=execute, args=(network, pair, insert), daemon=True)
    waiting.start()
    until(pair.cancel_sync_waits, "the commit to wait for its standby")
    waiting.join(10)
    assert not waiting.is_alive()
    pair.revive()
    execute(network, pair, "insert into duly.notes values (2)")
    assert notes(network, pair) == [1, 2]


def test_a_locked_table_makes_others_wait(network: Network, pair: PostgresPair) -> None:
    lock = pair.lock_table("notes", 3)
    until(lambda: locks(pair, "AccessExclusiveLock"), "the lock")
    reading = threading.Thread(target=notes, args=(network, pair), daemon=True)
    reading.start()
    until(lambda: locks(pair, "AccessShareLock") == [False], "a session to wait for it")
    lock.join(10)
    reading.join(10)
    assert not reading.is_alive()


def locks(pair: PostgresPair, mode: str) -> list[bool]:
    """Return for each lock on the table, held or awaited, whether it is granted."""
    rows = pair.primary.query(
        "select granted from pg_locks where mode = $1 and relation = 'duly.notes'::regclass", mode
    )
    return [row["granted"] for row in rows]


def test_a_full_disk_is_refused_and_recovered_from(network: Network, pair: PostgresPair) -> None:
    pair.fill_disk()
    with pytest.raises((asyncpg.PostgresError, OSError, TimeoutError, asyncpg.InterfaceError)):
        for _ in range(50):
            execute(network, pair, "insert into duly.notes select generate_series(1, 100000)")
    pair.free_disk()
    pair.revive()
    execute(network, pair, "truncate duly.notes")
    assert notes(network, pair) == []


@pytest.mark.skipif(not clocks.are_settable(), reason="libfaketime is not installed")
def test_the_clock_of_the_database_can_be_set(network: Network, pair: PostgresPair) -> None:
    for offset, expected in (("+3600", 3600.0), ("-60", -60.0), ("+0", 0.0)):
        pair.clock(offset)

        def is_off(expected: float = expected) -> bool:
            at = execute(network, pair, "select clock_timestamp() at")[0]["at"]
            return abs((at - datetime.now(UTC)).total_seconds() - expected) < 2

        until(is_off, f"a clock that is off by {expected} s", 10)


def test_a_redirect_can_delay_the_database(network: Network, pair: PostgresPair) -> None:
    pair.redirect(["client"], Behaviour(latency=0.5))
    assert seconds_of_a_statement(network, pair) > 1
    pair.end_redirect()
    assert seconds_of_a_statement(network, pair) < 1


def seconds_of_a_statement(network: Network, pair: PostgresPair) -> float:
    async def run() -> float:
        conn = await asyncpg.connect(pair.primary.dsn, timeout=10)
        began = time.monotonic()
        await conn.execute("select 1")
        conn.terminate()
        return time.monotonic() - began

    with network.host("client").entered():
        return asyncio.run(run())


def test_a_redirect_can_reset_connections(network: Network, pair: PostgresPair) -> None:
    pair.redirect(["client"], Behaviour(cut_after=20_000))
    assert notes(network, pair) == []
    with pytest.raises((asyncpg.PostgresError, OSError)):
        execute(network, pair, "select repeat('x', 30000)")
    pair.end_redirect()
    assert len(execute(network, pair, "select repeat('x', 30000)")) == 1


def test_responses_can_be_held_back_while_requests_arrive(
    network: Network, pair: PostgresPair
) -> None:
    async def insert() -> None:
        conn = await asyncpg.connect(pair.primary.dsn, timeout=10)
        pair.set_proxy_behaviour(Behaviour(stall="responses"))
        try:
            with pytest.raises(TimeoutError):
                await conn.execute("insert into duly.notes values (7)", timeout=1)
        finally:
            conn.terminate()

    pair.redirect(["client"], Behaviour())
    with network.host("client").entered():
        asyncio.run(insert())
    pair.end_redirect()
    assert notes(network, pair) == [7]
