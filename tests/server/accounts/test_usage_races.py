"""The usage ledger with transactions that commit late, leaders that die, and two at once."""

import asyncio
import random
from contextlib import asynccontextmanager

import asyncpg
import pytest

from duly.errors import NotLeading, Unavailable
from duly.server.accounts import usage_recorder
from tests.server.books import amounts_told, booked, recount, unbooked

ADD = """
    with task as (
            insert into tasks
            values ($1, 1, null, 1000000, null, 'basic', '{}', '{}', '5 m', '1 h', 3, 'retry', 0,
                    null, null, null, 0, duly.now())
                on conflict (id) do nothing
         )
    insert into attempts (task_id, attempt, tenant_id, token, node_id, incarnation_id, outcome,
                          leased_at, started_at, finished_at, cpu_seconds)
    values ($1, 1, 1, 1, 1, 1, 'succeeded', duly.now(), duly.now(),
            duly.now() + interval '1 s' * $2, 1)
    returning entry
"""
SHAPE = """insert into shapes (id, needs, key) values (1000000, '{"cpu_milli": 100}', 'races')
           on conflict do nothing"""  # A number that no other test of this database is given.


class Writer:
    """Somebody who ends attempts, and commits when told."""

    def __init__(self, conn, first):
        self.conn = conn
        self._ids = iter(range(first, first + 1000))
        self._transaction = None

    async def begin(self):
        self._transaction = self.conn.transaction()
        await self._transaction.start()

    async def add(self, ran=10):
        """End an attempt; return the number that it was given."""
        return await self.conn.fetchval(ADD, next(self._ids), ran)

    async def commit(self):
        await self._transaction.commit()
        self._transaction = None

    async def roll_back(self):
        await self._transaction.rollback()
        self._transaction = None

    @property
    def is_open(self):
        return self._transaction is not None


@asynccontextmanager
async def writers(dsn, count):
    """Open so many writers."""
    conns = [
        await asyncpg.connect(dsn, server_settings={"search_path": "duly"}) for _ in range(count)
    ]
    try:
        await conns[0].execute(SHAPE)
        first = await conns[0].fetchval("select first_id_of(day_of(duly.now()))")
        yield [Writer(conn, first + 10_000 * place) for place, conn in enumerate(conns)]
    finally:
        for conn in conns:
            await conn.close()


@pytest.fixture
async def writer(lab, shared_dsn):
    async with writers(shared_dsn, 1) as (one,):
        yield one


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    """Let the books give up soon on transactions that the test itself holds open."""
    monkeypatch.setattr(usage_recorder, "MAX_SETTLE_CHECKS", 2)


async def mark(lab):
    return await lab.conn.fetchval("select booked_to from usage_watermark")


async def test_the_recorder_waits_for_uncommitted_attempts(lab, shared_dsn):
    async with writers(shared_dsn, 2) as (slow, quick):
        await slow.begin()
        low = await slow.add()
        high = await quick.add()
        assert low < high
        await lab.components.usage_recorder.tick()
        assert await mark(lab) < low
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await slow.commit()
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await lab.components.usage_recorder.tick()
        assert (await mark(lab), await booked(lab.conn)) == (high, 2)
        assert await amounts_told(lab.conn) == await recount(lab.conn)


async def test_the_recorder_waits_for_an_open_transaction_while_no_other_ends(lab, writer):
    """A snapshot's xmax is no line to draw: it is below the ids of those that are open."""
    await writer.begin()
    low = await writer.add()
    await lab.components.usage_recorder.tick()
    assert await mark(lab) < low
    await writer.commit()
    await lab.components.usage_recorder.tick()
    assert (await mark(lab), await booked(lab.conn)) == (low, 1)


async def test_a_transaction_has_an_id_before_it_draws_a_number(lab, writer):
    """Otherwise it could get one above the line, and still hold a number below the mark."""
    drawn = await writer.conn.fetchval(
        "select pg_get_expr(adbin, adrelid) from pg_attrdef join pg_attribute on "
        "(attrelid, attnum) = (adrelid, adnum) "
        "where adrelid = 'attempts'::regclass and attname = 'entry'"
    )
    for _ in range(3):  # a sequence takes an id by itself for each 32nd number
        await writer.begin()
        assert await writer.conn.fetchval("select pg_current_xact_id_if_assigned() is null")
        await writer.conn.fetchval(f"select {drawn}")
        assert await writer.conn.fetchval("select pg_current_xact_id_if_assigned() is not null")
        await writer.roll_back()


async def test_numbers_of_failed_transactions_are_skipped(lab, writer):
    await writer.begin()
    await writer.add()
    await writer.roll_back()
    high = await writer.add()
    await lab.components.usage_recorder.tick()
    assert (await mark(lab), await booked(lab.conn)) == (high, 1)


async def test_a_number_drawn_after_the_watermark_is_left_for_the_next_tick(lab, shared_dsn):
    async with writers(shared_dsn, 2) as (slow, quick):
        first = await quick.add()
        usage_recorder = lab.components.usage_recorder
        async with lab.database.connection() as conn:
            assert await usage_recorder._is_settled(conn)
            await slow.begin()
            await slow.add()
            await quick.add()
            await usage_recorder._record_batch(conn, lab.components.cluster_manager.term, first)
        assert (await mark(lab), await booked(lab.conn)) == (first, 1)
        await slow.commit()
        assert await amounts_told(lab.conn) == await recount(lab.conn)
        await usage_recorder.tick()
        assert (await booked(lab.conn), await unbooked(lab.conn)) == (3, 0)


async def test_the_ledger_is_written_in_batches(lab, writer, monkeypatch):
    monkeypatch.setattr(usage_recorder, "ATTEMPTS_PER_BATCH", 3)
    for _ in range(8):
        await writer.add()
    await lab.components.usage_recorder.tick()
    assert (await booked(lab.conn), await unbooked(lab.conn)) == (8, 0)
    assert await amounts_told(lab.conn) == await recount(lab.conn)


async def test_a_leader_that_dies_while_recording_has_recorded_all_or_nothing(lab, writer):
    for _ in range(3):
        await writer.add()
    before = await mark(lab)
    # Whoever books stops at the table of usage, or at the page, and dies there.
    for table in ("usage", "usage_watermark"):
        await writer.begin()
        await writer.conn.execute(f"lock table {table} in exclusive mode")
        booking = asyncio.create_task(lab.components.usage_recorder.tick())
        pid = await waiting_for_lock(lab)
        await lab.conn.execute("select pg_terminate_backend($1)", pid)
        with pytest.raises(Unavailable):
            await booking
        await writer.roll_back()
        assert (await mark(lab), await booked(lab.conn)) == (before, 0)
        assert await amounts_told(lab.conn) == await recount(lab.conn)
    await lab.components.usage_recorder.tick()
    assert (await booked(lab.conn), await unbooked(lab.conn)) == (3, 0)


async def waiting_for_lock(lab):
    """Return who waits for a table, once somebody does."""
    while True:
        pid = await lab.conn.fetchval(
            "select pid from pg_locks where not granted and locktype = 'relation' "
            "and database = (select oid from pg_database where datname = current_database())"
        )
        if pid is not None:
            return pid


async def test_two_recorders_at_once_record_everything_once(lab, writer, monkeypatch):
    """Even if the term let both of them: the books are locked."""
    monkeypatch.setattr(usage_recorder, "ATTEMPTS_PER_BATCH", 2)
    other = lab.server()
    other.cluster_manager._term = lab.components.cluster_manager._term
    other.cluster_manager._trusted_until = lab.components.cluster_manager._trusted_until
    assert other.cluster_manager.term is not None
    for _ in range(5):
        for _ in range(7):
            await writer.add()
        await asyncio.gather(lab.components.usage_recorder.tick(), other.usage_recorder.tick())
        assert await unbooked(lab.conn) == 0
    assert await booked(lab.conn) == 35
    assert await amounts_told(lab.conn) == await recount(lab.conn)


async def test_a_former_leader_records_nothing(lab, writer):
    await writer.add()
    await lab.conn.execute("update terms set term = term + 1")
    with pytest.raises(NotLeading):
        await lab.components.usage_recorder.tick()
    assert await booked(lab.conn) == 0


async def test_a_follower_records_nothing(lab, writer):
    await writer.add()
    follower = lab.server()
    await follower.cluster_manager.tick()
    await follower.usage_recorder.tick()
    assert await booked(lab.conn) == 0


@pytest.mark.parametrize("seed", range(12))
async def test_in_any_order_the_ledger_equals_the_recount(lab, shared_dsn, seed, monkeypatch):
    """Writers begin, end attempts, commit and fail in any order, and the books are written."""
    monkeypatch.setattr(usage_recorder, "MAX_SETTLE_CHECKS", 1)
    monkeypatch.setattr(usage_recorder, "ATTEMPTS_PER_BATCH", 3)
    dice = random.Random(seed)
    async with writers(shared_dsn, 3) as all_writers:
        for _ in range(40):
            writer = dice.choice(all_writers)
            step = dice.choice(["write", "write", "end", "book"])
            if step == "book":
                await lab.components.usage_recorder.tick()
            elif step == "end" and writer.is_open:
                await (writer.commit() if dice.random() < 0.7 else writer.roll_back())
            elif step == "write":
                if not writer.is_open:
                    await writer.begin()
                await writer.add(dice.randrange(200_000))
            assert await amounts_told(lab.conn) == await recount(lab.conn)
        for writer in all_writers:
            if writer.is_open:
                await writer.commit()
        await lab.components.usage_recorder.tick()
        assert await unbooked(lab.conn) == 0
        assert await booked(lab.conn) == await lab.count("attempts")
        assert await amounts_told(lab.conn) == await recount(lab.conn)
