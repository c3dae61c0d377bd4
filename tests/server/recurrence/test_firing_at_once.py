"""Concurrent transactions fire very many due schedules; here the batch size is small."""

import asyncio

import asyncpg
import pytest

from duly.errors import NotLeading
from duly.server.recurrence import timekeeper
from tests.server.calendar import Calendar

FEW = 2


@pytest.fixture
def calendar(lab, monkeypatch):
    monkeypatch.setattr(timekeeper, "BATCH_SIZE", FEW)
    lab.components.timekeeper._batch_limit = FEW
    return Calendar(lab)


async def test_while_one_batch_is_blocked_the_other_continues(lab, calendar, shared_dsn):
    held_up = await calendar.create(overlap="cancel_other", every="1m")
    await calendar.go(1)
    (before,) = await calendar.tasks(held_up)
    # In this order: a batch that is fired alone, one that waits for the task, and more.
    early = [await _from(calendar, 1.8) for _ in range(FEW)]
    late = [await _from(calendar, 2.2) for _ in range(3 * FEW)]
    await lab.clock.set(calendar.at(2.5))
    await lab.components.cluster_manager.tick()
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    async with holder.transaction(), asyncio.timeout(20):
        await holder.execute("select from live where id = $1 for update", before)
        firing = asyncio.ensure_future(lab.components.timekeeper.tick())
        ran = "select count(*) from occurrences where task_id is not null"
        # The one that waits has one of the late ones in its batch.
        while await lab.conn.fetchval(ran) < 1 + FEW + 2 * FEW:
            await asyncio.sleep(0.01)
        assert not firing.done()
    await holder.close()
    await firing
    assert await calendar.ran(held_up) == [1, 2]
    assert [await calendar.ran(one) for one in (*early, *late)] == [[1.8]] * FEW + [[2.2]] * 3 * FEW
    assert await lab.status(before) == "cancelled"


async def test_concurrent_batches_fire_every_schedule_once(lab, calendar):
    made = [await calendar.create(overlap="allow") for _ in range(11 * FEW)]
    await calendar.go(1)
    await calendar.go(2)
    assert [await calendar.ran(one) for one in made] == [[1, 2]] * 11 * FEW
    assert await lab.count("tasks") == 22 * FEW


async def test_a_bucket_locked_by_one_batch_does_not_block_the_other(lab, calendar):
    await lab.conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              tasks_per_hour, burst)
           values ('hourly', '5 m', '1 h', '24 h', 1, 100, 100) on conflict do nothing"""
    )
    await lab.conn.execute("insert into tenants (name, plan) values ('hourly', 'hourly')")
    mine = await lab.credential("hourly")
    made = [await calendar.create(by=mine) for _ in range(6 * FEW)]
    await calendar.go(1)
    await lab.conn.execute("update tenants set plan = 'unlimited'")
    assert [await calendar.ran(one) for one in made] == [[1]] * 6 * FEW


async def test_only_the_unstorable_schedule_of_a_batch_is_refused(lab, calendar):
    made = [await calendar.create() for _ in range(6 * FEW)]
    bad = made[4 * FEW]
    await lab.conn.execute(
        "alter table tasks add constraint no_such_name check (name is distinct from 'bad')"
    )
    await lab.conn.execute(
        """update schedules set task = task || '{"name": "bad"}' where id = $1""", bad
    )
    try:
        await calendar.go(1)
    finally:
        await lab.conn.execute("alter table tasks drop constraint no_such_name")
    assert [one for one in made if await calendar.ran(one) != [1]] == [bad]
    assert await calendar.missed(bad) == [(1, 1, "not_submittable")]


async def test_a_term_that_ends_while_firing_raises_not_leading(lab, calendar):
    schedule = await calendar.create()
    stale = lab.components.cluster_manager.term
    await lab.clock.set(calendar.at(1))
    await lab.server().cluster_manager.tick()
    with pytest.raises(NotLeading):
        await lab.components.timekeeper._fire_many(stale, ())
    assert await calendar.ran(schedule) == []


async def _from(calendar, minute):
    return await calendar.create(every="1h", start_at=calendar.at(minute).isoformat())
