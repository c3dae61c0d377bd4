"""Occurrences are admitted like any other task, within the tenant's plan at that time."""

import asyncio

import asyncpg
import pytest

from tests.server.calendar import Calendar
from tests.server.lab import seconds

WAITS = """
select exists (
        select 1
          from pg_stat_activity
         where datname = current_database()
           and wait_event_type = 'Lock'
       )
"""


@pytest.fixture
def calendar(lab):
    return Calendar(lab)


@pytest.fixture
async def tight(lab):
    """Return a client of a tenant with a plan whose limits a test sets."""
    await lab.conn.execute("delete from plans where name = 'tight'")
    await lab.conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight)
           values ('tight', '5 m', '1 h', '24 h', 1)"""
    )
    await lab.conn.execute("insert into tenants (name, plan) values ('tight', 'tight')")
    yield await lab.credential("tight")
    await lab.conn.execute("update tenants set plan = 'unlimited'")


async def grant(lab, **limits):
    for name, value in limits.items():
        await lab.conn.execute(f"update plans set {name} = $1 where name = 'tight'", value)


async def test_a_fire_time_without_a_token_is_recorded_and_takes_none_of_others(
    lab, calendar, tight
):
    await lab.conn.execute("update plans set tasks_per_hour = 60, burst = 2 where name = 'tight'")
    mine = [await calendar.create(by=tight) for _ in range(3)]
    theirs = await calendar.create()
    await calendar.go(1)
    assert await calendar.ran(theirs) == [1]
    assert sorted([len(await calendar.ran(one)) for one in mine]) == [0, 1, 1]
    (refused,) = [one for one in mine if not await calendar.ran(one)]
    assert await calendar.missed(refused) == [(1, 1, "limit_exceeded")]
    tokens = "select tokens from buckets where tenant_id = $1"
    assert await lab.conn.fetchval(tokens, tight.tenant_id) == 0


@pytest.mark.parametrize("what", ["buckets", "tenants"])
async def test_a_locked_tenant_is_skipped_and_blocks_no_other(
    lab, calendar, tight, shared_dsn, what
):
    await lab.conn.execute("update plans set tasks_per_hour = 60, burst = 2 where name = 'tight'")
    mine, theirs = await calendar.create(by=tight), await calendar.create()
    await lab.conn.execute("insert into buckets values ($1, 2, duly.now())", tight.tenant_id)
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    try:
        await holder.execute("begin")
        column = "tenant_id" if what == "buckets" else "id"
        await holder.execute(f"select from {what} where {column} = {tight.tenant_id} for update")
        async with asyncio.timeout(20):
            await calendar.go(1)
    finally:
        await holder.close()
    assert (await calendar.ran(mine), await calendar.ran(theirs)) == ([], [1])
    assert await calendar.missed(mine) == []
    assert lab.components.timekeeper.pause() < seconds(0.1)
    await calendar.go(1.01)
    assert await calendar.ran(mine) == [1]


async def test_no_more_occurrences_are_admitted_than_may_wait(lab, calendar, tight):
    await grant(lab, max_waiting=2)
    mine = [await calendar.create(by=tight, overlap="allow") for _ in range(3)]
    await calendar.go(1)
    await calendar.go(2)
    ran = [len(await calendar.ran(one)) for one in mine]
    assert sum(ran) == 2
    refusals = [code for one in mine for _, _, code in await calendar.missed(one)]
    assert refusals == ["limit_exceeded"] * 4


async def test_a_refused_fire_time_cancels_no_open_occurrence(lab, calendar, tight):
    schedule = await calendar.create(by=tight, overlap="cancel_other")
    await calendar.go(1)
    await grant(lab, max_waiting=1)
    await calendar.go(2)
    (task,) = await calendar.tasks(schedule)
    assert await lab.status(task) == "waiting"
    assert await calendar.missed(schedule) == [(2, 1, "limit_exceeded")]


async def test_a_suspended_tenant_submits_nothing_by_its_schedules(lab, calendar, tight):
    schedule = await calendar.create(by=tight)
    await lab.conn.execute("update tenants set suspended_at = now() where name = 'tight'")
    await calendar.go(1)
    await lab.conn.execute("update tenants set suspended_at = null where name = 'tight'")
    await calendar.go(2)
    assert await calendar.missed(schedule) == [(1, 1, "tenant_suspended")]
    assert await calendar.ran(schedule) == [2]


async def test_a_task_that_the_plan_no_longer_allows_is_not_submitted(lab, calendar, tight):
    schedule = await calendar.create(by=tight, task={"execution_cap": "2h"})
    await grant(lab, max_execution_cap=seconds(3600))
    await calendar.go(1)
    assert await calendar.missed(schedule) == [(1, 1, "not_submittable")]


async def test_the_plans_queues_are_checked_again_when_a_schedule_fires(lab, calendar, tight):
    schedule = await calendar.create(by=tight, task={"queue": "urgent"})
    plain = await calendar.create(by=tight)
    await grant(lab, queues=["off_peak"])
    await calendar.go(1)
    assert await calendar.missed(schedule) == [(1, 1, "not_submittable")]
    await grant(lab, queues=["urgent"])
    await calendar.go(2)
    queues = [await queue_of(lab, *await calendar.tasks(one)) for one in (schedule, plain)]
    assert queues == ["urgent", "periodic"]


async def queue_of(lab, task, *_):
    return await lab.conn.fetchval(
        "select queue from shapes where id = (select shape_id from live where id = $1)", task
    )


async def test_a_task_gets_the_defaults_of_the_plan_at_the_fire_time(lab, calendar, tight):
    schedule = await calendar.create(by=tight)
    await grant(lab, execution_cap=seconds(120))
    await calendar.go(1)
    (task,) = await calendar.tasks(schedule)
    assert (await lab.live(task))["execution_cap"] == seconds(120)


async def test_of_two_occurrences_with_one_unique_key_one_runs(lab, calendar):
    unique = {"unique": {"key": "k"}}
    first, second = [await calendar.create(task=unique) for _ in range(2)]
    await calendar.go(1)
    assert len(await calendar.tasks(first)) + len(await calendar.tasks(second)) == 1
    await calendar.go(2)
    codes = {code for one in (first, second) for _, _, code in await calendar.missed(one)}
    assert codes == {"unique_key_held", "overlap"}


async def test_a_unique_key_taken_during_the_transaction_is_recorded_as_the_reason(
    lab, calendar, shared_dsn
):
    schedule = await calendar.create(task={"unique": {"key": "k"}})
    other = await lab.submit()
    await lab.clock.set(calendar.at(1))
    await lab.components.cluster_manager.tick()
    lab.components.timekeeper._batch_limit = 1
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    async with holder.transaction(), asyncio.timeout(20):
        await holder.execute(
            "update live set unique_key = 'k', unique_while = 'live' where id = $1", other
        )
        firing = asyncio.ensure_future(lab.components.timekeeper.tick())
        while not await lab.conn.fetchval(WAITS):
            await asyncio.sleep(0.01)
    await firing
    await holder.close()
    assert await calendar.missed(schedule) == [(1, 1, "unique_key_held")]


async def test_an_unstorable_occurrence_does_not_block_the_others(lab, calendar):
    good, bad, also_good = [await calendar.create() for _ in range(3)]
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
    assert [await calendar.ran(one) for one in (good, bad, also_good)] == [[1], [], [1]]
    assert await calendar.missed(bad) == [(1, 1, "not_submittable")]
    assert lab.components.timekeeper._batch_limit > 1
