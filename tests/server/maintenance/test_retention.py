import asyncio
from datetime import timedelta

import pytest

from duly.model.task import Outcome
from tests.server.conftest import execute
from tests.server.lab import CLOCK

DAY = timedelta(days=1)


@pytest.fixture
def emptied_dsn(dsn):
    """A database of its own, because days are dropped from it."""
    asyncio.run(execute(dsn, CLOCK))
    return dsn


async def clean_up(lab, after=timedelta(0)):
    """Let time pass, and let the leader drop what is too old."""
    await lab.clock.move(after)
    await lab.components.cluster_manager.tick()
    await lab.components.usage_recorder.tick()
    while await lab.components.retention.tick():
        pass


async def log_of(lab, ref):
    return b"".join([data async for data in lab.components.log_store.read(ref.task, ref.attempt)])


async def run_and_log(lab, node, outcome, **fields):
    """Bring a task to the end of an attempt that has written something."""
    ref = await lab.run(node, **fields)
    await lab.components.log_store.append(ref, 0, b"hello")
    await node.report(ref, outcome)
    return ref


async def stored(lab, task):
    """Say in which tables a task has rows."""
    tables = {"tasks": "id", "attempts": "task_id", "ends": "task_id", "dead_letters": "task_id"}
    return {
        table
        for table, column in tables.items()
        if await lab.conn.fetchval(f"select count(*) from {table} where {column} = $1", task)
    }


async def test_history_is_kept_as_long_as_the_settings_say(lab):
    node = await lab.node()
    done = await run_and_log(lab, node, Outcome.SUCCEEDED)
    dead = await run_and_log(lab, node, Outcome.FAILED, max_attempts=1)
    await clean_up(lab, DAY * 29)
    assert await stored(lab, done.task) == {"tasks", "attempts", "ends"}
    assert await stored(lab, dead.task) == {"tasks", "attempts", "ends", "dead_letters"}
    assert await log_of(lab, done) == b"hello"
    await clean_up(lab, DAY * 3)
    assert await stored(lab, done.task) == await stored(lab, dead.task) == set()
    assert await log_of(lab, done) == b""


async def test_a_task_that_is_still_live_outlives_its_day_with_attempts_and_logs(lab):
    node = await lab.node()
    done = await run_and_log(lab, node, Outcome.SUCCEEDED)
    survivor = await run_and_log(lab, node, Outcome.EXPIRED)
    await lab.components.updater.update(
        lab.client, survivor.task, {"run_at": (lab.clock.now + DAY * 365).isoformat()}
    )
    await clean_up(lab, DAY * 40)
    assert await stored(lab, done.task) == set()
    assert await stored(lab, survivor.task) == {"tasks", "attempts"}
    assert await log_of(lab, survivor) == b"hello"

    node = await lab.rejoin(node)
    await lab.components.updater.update(lab.client, survivor.task, {"run_at": None})
    ref = await lab.start(node, survivor.task)
    assert ref.attempt == 2
    assert await node.report(ref)
    await clean_up(lab, DAY * 29)
    assert await stored(lab, survivor.task) == {"tasks", "attempts", "ends"}
    await clean_up(lab, DAY * 2)
    assert await stored(lab, survivor.task) == set()


async def test_a_key_is_kept_while_its_task_is_live_and_a_week_longer(lab):
    later = lab.clock.now + DAY * 60
    task = await lab.submit(idempotency_key="k", run_at=later)
    await clean_up(lab, DAY * 59)
    assert await lab.submit(idempotency_key="k", run_at=later) == task
    await lab.components.canceller.cancel(lab.client, [task])
    await clean_up(lab, DAY * 6)
    assert await lab.submit(idempotency_key="k", run_at=later) == task
    await clean_up(lab, DAY * 2)
    assert await lab.submit(idempotency_key="k", run_at=later) != task


async def test_partitions_are_made_ahead_and_tasks_find_theirs(lab):
    await clean_up(lab, DAY * 100)
    task = await lab.submit()
    partition = await lab.conn.fetchval(
        "select tableoid::regclass::text from tasks where id = $1", task
    )
    assert partition == f"tasks_{await lab.conn.fetchval('select day_of($1::bigint)', task)}"


async def test_a_follower_drops_nothing(lab):
    follower = lab.server()
    await follower.cluster_manager.tick()
    node = await lab.node()
    done = await run_and_log(lab, node, Outcome.SUCCEEDED)
    await lab.clock.move(DAY * 100)
    await lab.components.cluster_manager.tick()
    assert await follower.retention.tick() is False
    assert await stored(lab, done.task) == {"tasks", "attempts", "ends"}


async def test_tasks_run_while_days_are_dropped(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.clock.move(DAY * 40)
    await node.heartbeat(ref)
    await clean_up(lab)
    assert await node.report(ref)
    assert await lab.status(ref.task) == "done"
