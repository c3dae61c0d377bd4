"""Impossible states of tasks, made by hand, are found and repaired, or left for a person."""

import asyncio
from datetime import timedelta

import pytest

from duly.config import AuditSettings, Settings
from duly.errors import Conflict
from duly.model.drift import DriftKind, Finding
from duly.model.requests.task_request import UniqueRequest
from duly.model.task import Outcome
from tests.server.lab import seconds

BROKEN = 1 << 40
"""The id of something that does not exist."""


@pytest.fixture
def settings():
    """Both scopes are gone through as often."""
    return Settings(audit=AuditSettings(history_interval=seconds(15)))


async def test_an_end_is_final_whatever_lives(lab, watch):
    node = await watch.node()
    waiting, running = await lab.submit(cpu=64), await lab.run(node)
    for task in (waiting, running.task):
        await lab.conn.execute(
            "insert into ends (task_id, tenant_id, status, attempt, failures, losses, ready_at, "
            "start_by, finished_at) select $1, 1, 'done', 0, 0, 0, at, at, at from clock",
            task,
        )
    assert await watch.found() == {}
    for task in (waiting, running.task):
        assert await lab.live(task) is None
        assert await lab.status(task) == "done"
        assert await watch.repaired(task) == ["live_and_ended"]
    assert [stop.ref for stop in await node.heartbeat(running)] == [running]


async def test_a_live_row_whose_task_is_gone_is_reported(lab, watch):
    task = await lab.submit(cpu=64)
    await lab.conn.execute("delete from tasks where id = $1", task)
    assert await watch.found() == {"live_without_task": {task}}


async def test_a_live_row_that_asks_for_something_else_follows_its_task(lab, watch):
    task = await lab.submit(cpu=64)
    asked = (await lab.live(task))["shape_id"]
    await lab.conn.execute("update live set shape_id = 4711, max_attempts = 9")
    assert await watch.found() == {}
    row = await lab.live(task)
    assert (row["shape_id"], row["max_attempts"]) == (asked, 3)
    assert await watch.repaired(task) == ["mismatched"]


async def test_a_task_that_is_restored_holds_its_unique_key_again(lab, watch):
    task = await lab.submit(unique=UniqueRequest(key="k"))
    await lab.conn.execute("delete from live")
    assert await watch.found() == {}
    assert await watch.repaired(task) == ["lost_task"]
    with pytest.raises(Conflict, match=str(task)):
        await lab.submit(unique=UniqueRequest(key="k"))


async def test_a_lost_task_waits_for_whoever_has_its_unique_key_now(lab, watch):
    task = await lab.submit(unique=UniqueRequest(key="k"))
    await lab.conn.execute("delete from live")
    holder = await lab.submit(unique=UniqueRequest(key="k"))
    assert await watch.found() == {"lost_task": {task}}
    await lab.components.canceller.cancel(lab.client, [holder])
    assert await watch.found() == {}
    assert (await lab.live(task))["unique_key"] == "k"


async def test_a_live_row_that_has_lost_its_unique_key_gets_it_back(lab, watch):
    task = await lab.submit(cpu=64, unique=UniqueRequest(key="k"))
    await lab.conn.execute("update live set unique_key = null, unique_while = null")
    assert await watch.found() == {}
    assert await watch.repaired(task) == ["mismatched"]
    assert (await lab.live(task))["unique_key"] == "k"


async def test_a_change_that_is_just_being_made_is_not_undone(lab):
    task = await lab.submit(cpu=64)
    term = lab.components.cluster_manager.term
    finding = Finding(DriftKind.MISMATCHED, task)
    async with (
        asyncio.timeout(5),
        asyncio.TaskGroup() as group,
        lab.database.transaction() as conn,
    ):
        await conn.execute("select 1 from live where id = $1 for update", task)
        await conn.execute("update tasks set priority = 7 where id = $1", task)
        await conn.execute("update live set priority = 7 where id = $1", task)
        repairing = group.create_task(lab.components.auditor._repairer.repair(term, [finding]))
        while not await lab.conn.fetchval(
            "select exists (select 1 from pg_locks where not granted)"
        ):
            await asyncio.sleep(0)
    assert repairing.result() == []
    assert (await lab.live(task))["priority"] == 7


async def test_a_running_task_keeps_the_shape_that_it_was_placed_with(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    other = await lab.submit(cpu=64)
    shape = (await lab.live(other))["shape_id"]
    await lab.conn.execute("update tasks set shape_id = $1 where id = $2", shape, ref.task)
    assert await watch.found() == {"mismatched": {ref.task}}
    assert (await lab.live(ref.task))["shape_id"] != shape


async def test_placement_continues_while_a_shape_is_unknown(lab, watch):
    first, second = await watch.node(), await watch.node()
    refs = {ref.task: ref for ref in [await lab.run(node) for node in (first, first, first)]}
    task = min(refs)
    await lab.conn.execute("update live set shape_id = 4711 where id = $1", task)
    await lab.conn.execute("update tasks set shape_id = 4711 where id = $1", task)
    assert await watch.found() == {"unknown_shape": {task}}
    more = await lab.submit()
    await lab.schedule()
    assert await lab.run_on(second) == {more}


async def test_a_scheduled_task_whose_time_came_long_ago_is_released(lab, watch):
    task = await lab.submit(cpu=64, run_at=lab.clock.now + seconds(1))
    await watch.wait()
    assert await lab.status(task) == "scheduled"
    assert await watch.found() == {}
    assert await lab.status(task) == "waiting"
    assert await watch.repaired(task) == ["not_released"]


async def test_a_task_that_is_neither_live_nor_ended_lives_again(lab, watch):
    task = await lab.submit()
    await lab.conn.execute("delete from live where id = $1", task)
    assert await watch.found() == {}
    assert await lab.status(task) == "waiting"
    assert await watch.repaired(task) == ["lost_task"]
    node = await watch.node()
    ref = await lab.start(node, task)
    assert await node.report(ref)
    assert await lab.status(task) == "done"


@pytest.mark.parametrize("sign", ["attempt", "event", "letter", "on_lost"])
async def test_a_lost_task_that_may_have_run_or_ended_is_only_reported(lab, watch, sign):
    task = await lab.submit(on_lost="fail" if sign == "on_lost" else "retry", cpu=64)
    await lab.conn.execute("delete from live")
    if sign == "attempt":
        await lab.conn.execute(
            "insert into attempts (task_id, attempt, tenant_id, token, node_id, incarnation_id, "
            "outcome, leased_at, finished_at) "
            "select $1, 1, 1, 1, 1, 1, 'succeeded', at, at from clock",
            task,
        )
    if sign == "event":
        await lab.conn.execute(
            "insert into events (task_id, tenant_id, at, kind) "
            "select $1, 1, at, 'cancelled' from clock",
            task,
        )
    if sign == "letter":
        await lab.conn.execute("insert into dead_letters select $1, 1, 'x', at from clock", task)
    expected = {"lost_task": {task}} | ({"letter_without_end": {task}} if sign == "letter" else {})
    assert await watch.found() == expected
    assert await lab.status(task) is None


async def test_a_key_that_stands_for_nothing_is_reported(lab, watch):
    task = await lab.submit(idempotency_key="k", cpu=64)
    await lab.conn.execute("delete from tasks")
    await lab.conn.execute("delete from live")
    assert await watch.found() == {"key_without_task": {task}}


async def test_a_key_may_outlive_the_history_of_its_task(lab, watch):
    task = await lab.submit(idempotency_key="k", cpu=64)
    await lab.conn.execute("delete from tasks")
    await lab.conn.execute("delete from live")
    await lab.clock.move(timedelta(days=32))
    assert await watch.found() == {}
    assert task


async def test_a_dead_letter_of_a_task_that_has_not_failed_is_taken_away(lab, watch):
    node = await watch.node()
    live, done = await lab.submit(cpu=64), await lab.run(node)
    dead = await lab.run(node, max_attempts=1)
    await node.report(done)
    await node.report(dead, Outcome.FAILED)
    for task in (live, done.task, BROKEN):
        await lab.conn.execute("insert into dead_letters select $1, 1, 'x', at from clock", task)
    assert await watch.found() == {}
    assert (await lab.dead_letters()).keys() == {dead.task}
    assert await watch.repaired(live) == ["letter_without_end"]


async def test_a_mark_is_brought_up_to_the_ids_that_were_minted(lab, watch):
    task = await lab.submit(cpu=64)
    ahead = task + (3600 << 31)
    for table in ("tasks", "live"):
        await lab.conn.execute(f"update {table} set id = $1", ahead)
    assert await watch.found() == {}
    assert await lab.conn.fetchval("select high_water from servers") >= ahead >> 31
    assert await watch.repaired(ahead) == ["minted_ahead"]


async def test_an_id_of_a_server_that_never_was_is_reported(lab, watch):
    task = await lab.submit(cpu=64)
    foreign = task | (200 << 17)
    for table in ("tasks", "live"):
        await lab.conn.execute(f"update {table} set id = $1", foreign)
    assert await watch.found() == {"minted_ahead": {foreign}}
