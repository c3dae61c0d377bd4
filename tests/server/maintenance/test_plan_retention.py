"""A tenant's history is kept for as long as its plan says."""

import asyncio

import pytest

from duly.errors import NotFound
from duly.model.task import Outcome
from duly.server.maintenance import plan_retention
from duly.store.tasks import views
from tests.server.conftest import execute
from tests.server.lab import CLOCK
from tests.server.maintenance.test_retention import DAY, clean_up, log_of, run_and_log, stored

ALL = {"tasks", "attempts", "ends"}


@pytest.fixture
def emptied_dsn(dsn):
    """A database of its own, because days are dropped from it."""
    asyncio.run(execute(dsn, CLOCK))
    return dsn


@pytest.fixture
async def week(lab):
    """A plan of seven days, which the second tenant has."""
    await lab.conn.execute(
        "insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,"
        " retention) values ('week', '5 m', '1 h', '1 h', 1, '7 days')"
    )
    await lab.conn.execute("update tenants set plan = 'week' where name = 'acme'")


async def retain(lab, days, plan="week"):
    await lab.conn.execute(
        "update plans set retention = make_interval(days => $2) where name = $1", plan, days
    )


async def test_each_tenant_keeps_what_its_plan_says(lab, week):
    node = await lab.node()
    done = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)
    dead = await run_and_log(lab, node, Outcome.FAILED, by=lab.stranger, max_attempts=1)
    other = await run_and_log(lab, node, Outcome.SUCCEEDED)
    await clean_up(lab, DAY * 7)
    assert await stored(lab, done.task) == ALL
    assert await stored(lab, dead.task) == {*ALL, "dead_letters"}
    await clean_up(lab, DAY)
    assert await stored(lab, done.task) == await stored(lab, dead.task) == set()
    assert await log_of(lab, done) == b""
    assert await stored(lab, other.task) == ALL
    assert await log_of(lab, other) == b"hello"


async def test_a_removed_task_is_unknown_everywhere(lab, week):
    node = await lab.node()
    ref = await run_and_log(lab, node, Outcome.FAILED, by=lab.stranger, max_attempts=1)
    await clean_up(lab, DAY * 8)
    async with lab.database.connection() as conn:
        assert await views.read_result(conn, lab.stranger.tenant_id, ref.task) is None
        assert await views.read_log_end(conn, lab.stranger.tenant_id, ref.task, None) is None
    with pytest.raises(NotFound):
        await lab.components.replayer.replay(lab.stranger, ref.task)


async def test_a_change_of_plans_takes_effect(lab, week):
    node = await lab.node()
    ref = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)
    await retain(lab, 20)
    await clean_up(lab, DAY * 10)
    assert await stored(lab, ref.task) == ALL
    await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'acme'")
    await clean_up(lab, DAY * 12)
    assert await stored(lab, ref.task) == ALL
    await lab.conn.execute("update tenants set plan = 'week' where name = 'acme'")
    await clean_up(lab)
    assert await stored(lab, ref.task) == set()


async def test_a_plan_that_would_keep_more_than_the_server_keeps_no_more(lab, week):
    node = await lab.node()
    ref = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)
    await retain(lab, 400)
    await clean_up(lab, DAY * 32)
    assert await stored(lab, ref.task) == set()


async def test_retention_counts_from_the_end_of_a_task(lab, week):
    node = await lab.node()
    late = await lab.submit(by=lab.stranger, run_at=lab.clock.now + DAY * 10)
    done = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)
    await clean_up(lab, DAY * 9)
    assert (await stored(lab, late), await stored(lab, done.task)) == ({"tasks"}, set())
    await lab.clock.move(DAY * 2)
    node = await lab.rejoin(node)
    await lab.sweep()
    assert await node.report(await lab.start(node, late))
    for _ in range(6):
        await clean_up(lab, DAY)
    assert await stored(lab, late) == ALL
    await clean_up(lab, DAY * 2)
    assert await stored(lab, late) == set()


async def test_what_a_waiting_task_depends_on_is_kept_until_that_has_run(lab, week):
    node = await lab.node()
    first = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)
    then = await lab.submit(by=lab.stranger, run_at=lab.clock.now + DAY * 12)
    await lab.conn.execute(
        "insert into edges (dependant_id, upstream_id, tenant_id, condition, is_counted)"
        " values ($1, $2, $3, 'success', false)",
        then,
        first.task,
        lab.stranger.tenant_id,
    )
    await clean_up(lab, DAY * 10)
    assert await stored(lab, first.task) == ALL
    await lab.clock.move(DAY * 3)
    node = await lab.rejoin(node)
    await lab.sweep()
    assert await node.report(await lab.start(node, then))
    await clean_up(lab, DAY)
    assert (await stored(lab, first.task), await stored(lab, then)) == (set(), ALL)


async def test_a_key_outlives_its_task_by_as_long_as_the_settings_say(lab, week):
    await retain(lab, 1)
    node = await lab.node()
    later = lab.clock.now + DAY * 8
    fields = {"by": lab.stranger, "idempotency_key": "k", "run_at": later}
    task = await lab.submit(**fields)
    await lab.clock.move(DAY * 9)
    node = await lab.rejoin(node)
    await lab.sweep()
    assert await node.report(await lab.start(node, task))
    await clean_up(lab, DAY * 3)
    assert await stored(lab, task) == set()
    assert await lab.submit(**fields) == task
    await clean_up(lab, DAY * 3)
    assert await lab.submit(**fields) == task
    await clean_up(lab, DAY * 2)
    assert await lab.submit(**fields) != task


async def test_the_audit_and_the_ledger_do_not_miss_removed_tasks(lab, watch, week):
    await retain(lab, 1)
    node = await watch.node()
    refs = [
        await run_and_log(lab, node, outcome, by=lab.stranger, max_attempts=1, idempotency_key=key)
        for outcome, key in ((Outcome.SUCCEEDED, "a"), (Outcome.FAILED, "b"))
    ]
    await clean_up(lab, DAY)
    used = await lab.conn.fetch("select * from usage")
    assert [await stored(lab, ref.task) for ref in refs] == [ALL, {*ALL, "dead_letters"}]
    assert await watch.found() == {}
    await clean_up(lab, DAY)
    assert [await stored(lab, ref.task) for ref in refs] == [set(), set()]
    # Now with a plan that would have kept them.
    await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'acme'")
    node = await lab.rejoin(node)
    watch.nodes = [node]
    assert await watch.found() == {}
    assert await lab.conn.fetch("select * from usage") == used
    assert used


async def test_history_is_scanned_in_batches_and_past_kept_tasks(lab, week, monkeypatch):
    monkeypatch.setattr(plan_retention, "TASKS_PER_BATCH", 3)
    monkeypatch.setattr(plan_retention, "TENANTS_PER_STATEMENT", 1)
    await lab.conn.execute("update tenants set plan = 'week'")
    node = await lab.node(cpu=64)
    kept, ended = [], []
    for by in (lab.client, lab.stranger):
        for number in range(8):
            task = await lab.submit(by=by, run_at=lab.clock.now + DAY * (40 if number % 2 else 0))
            (kept if number % 2 else ended).append(task)
    await lab.schedule()
    for ref in await node.starts():
        await node.report(ref)
    await clean_up(lab, DAY * 9)
    found = await lab.conn.fetch("select id from tasks order by id")
    assert [row["id"] for row in found] == sorted(kept)
    assert await lab.count("ends") == 0
    assert len(ended) == 8


async def test_a_failed_deletion_of_a_log_is_retried(lab, week, monkeypatch):
    node = await lab.node()
    ref = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)

    async def fail(tasks):
        raise OSError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(lab.components.log_store, "drop", fail)
        with pytest.raises(OSError, match="no answer"):
            await clean_up(lab, DAY * 9)
    assert await stored(lab, ref.task) == set()
    assert await log_of(lab, ref) == b"hello"
    await clean_up(lab)
    assert await log_of(lab, ref) == b""


async def test_a_follower_removes_no_tasks(lab, week):
    follower = lab.server()
    await follower.cluster_manager.tick()
    node = await lab.node()
    ref = await run_and_log(lab, node, Outcome.SUCCEEDED, by=lab.stranger)
    await lab.clock.move(DAY * 20)
    await lab.components.cluster_manager.tick()
    await lab.components.usage_recorder.tick()
    assert await follower.retention.tick() is False
    assert await stored(lab, ref.task) == ALL
