import asyncio

import pytest

from duly.errors import Conflict, Invalid, NotFound
from duly.model.task import Outcome
from tests.server.lab import between_placing_and_leasing, seconds


async def update(lab, task, by=None, **changes):
    await lab.components.updater.update(by or lab.client, task, changes)


async def stored(lab, task):
    return await lab.conn.fetchrow("select * from tasks where id = $1", task)


async def needs(lab, task):
    """Return what the live row asks for; the wide row must say the same."""
    rows = await lab.conn.fetch(
        """select s.needs from shapes s join live l on l.shape_id = s.id where l.id = $1
           union select s.needs from shapes s join tasks t on t.shape_id = s.id where t.id = $1""",
        task,
    )
    (row,) = rows
    return row["needs"]


async def test_a_waiting_task_can_be_changed(lab):
    node = await lab.node()
    task = await lab.submit(command=["true"])
    await update(lab, task, name="new", command=["false"], priority=7, max_attempts=9)
    await update(lab, task, delay_tolerance="30s", execution_cap="40s", on_lost="fail")
    row, live = await stored(lab, task), await lab.live(task)
    assert (row["name"], row["priority"], row["max_attempts"]) == ("new", 7, 9)
    for name in ("priority", "max_attempts", "delay_tolerance", "execution_cap", "on_lost"):
        assert row[name] == live[name]
    assert live["start_by"] == live["ready_at"] + seconds(30)
    await lab.schedule()
    (start,) = (await node.poll()).start
    assert (start.payload.command, start.execution_cap) == (["false"], 40)


async def test_an_update_is_recorded_as_an_event(lab):
    task = await lab.submit()
    await update(lab, task, priority=1, name="a")
    kind, details = await lab.conn.fetchrow("select kind, details from events")
    assert (kind, details) == ("updated", '{"fields": ["name", "priority"]}')


async def test_a_scheduled_task_can_be_moved_forward_and_back(lab):
    now = lab.clock.now
    task = await lab.submit(run_at=now + seconds(60), delay_tolerance="10s")
    await update(lab, task, run_at=(now + seconds(3600)).isoformat())
    row = await lab.live(task)
    assert (row["status"], row["ready_at"]) == ("scheduled", now + seconds(3600))
    assert row["start_by"] == now + seconds(3610)
    await update(lab, task, run_at=(now + seconds(5)).isoformat())
    assert (await lab.live(task))["ready_at"] == now + seconds(5)
    await update(lab, task, run_at=None)
    row = await lab.live(task)
    assert (row["status"], row["ready_at"]) == ("waiting", now)
    node = await lab.node()
    assert (await lab.start(node, task)).task == task


async def test_a_waiting_task_can_be_postponed(lab):
    node = await lab.node()
    task = await lab.submit()
    await update(lab, task, run_at=(lab.clock.now + seconds(60)).isoformat())
    await lab.schedule()
    assert await node.starts() == []
    assert await lab.status(task) == "scheduled"


async def test_a_time_in_the_past_is_now(lab):
    task = await lab.submit(run_at=lab.clock.now + seconds(60))
    await update(lab, task, run_at=(lab.clock.now - seconds(60)).isoformat())
    row = await lab.live(task)
    assert (row["status"], row["ready_at"]) == ("waiting", lab.clock.now)


async def test_a_change_of_something_else_leaves_the_time_alone(lab):
    task = await lab.submit(run_at=lab.clock.now + seconds(60))
    before = await lab.live(task)
    await lab.clock.move(seconds(10))
    await update(lab, task, priority=3)
    after = await lab.live(task)
    assert (after["status"], after["ready_at"]) == ("scheduled", before["ready_at"])


async def test_a_task_in_its_backoff_can_be_changed_and_stays_in_it(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.report(ref, Outcome.FAILED)
    before = await lab.live(ref.task)
    await update(lab, ref.task, command=["better"])
    after = await lab.live(ref.task)
    for name in ("status", "ready_at", "attempt", "failures"):
        assert after[name] == before[name]


async def test_resources_change_kind_by_kind(lab):
    task = await lab.submit(tier="regular")
    await update(lab, task, resources={"cpu": 3})
    assert '"cpu_milli": 3000' in await needs(lab, task)
    assert '"memory_mb": 1024' in await needs(lab, task)
    await update(lab, task, resources={"memory": "2GiB"})
    assert '"cpu_milli": 3000' in await needs(lab, task)
    assert '"memory_mb": 2048' in await needs(lab, task)
    await update(lab, task, tier="basic")
    assert '"cpu_milli": 500' in await needs(lab, task)
    assert '"memory_mb": 256' in await needs(lab, task)


async def test_a_task_that_was_too_large_is_placed_once_it_is_small_enough(lab):
    node = await lab.node(cpu=1)
    task = await lab.submit(cpu=2)
    await lab.schedule()
    await update(lab, task, resources={"cpu": 1})
    assert (await lab.start(node, task)).task == task


async def test_a_task_that_grows_during_placement_is_not_leased_with_its_old_resources(lab):
    node = await lab.node(cpu=1)
    task = await lab.submit(cpu=1)
    await between_placing_and_leasing(lab, update(lab, task, resources={"cpu": 2}))
    assert await lab.status(task) == "waiting"
    await update(lab, task, resources={"cpu": 0.5})
    assert (await lab.start(node, task)).task == task


async def test_a_task_that_runs_or_has_ended_cannot_be_changed(lab):
    node = await lab.node()
    ref = await lab.run(node)
    with pytest.raises(Conflict, match="is running"):
        await update(lab, ref.task, priority=1)
    await node.report(ref)
    with pytest.raises(Conflict, match="has ended"):
        await update(lab, ref.task, priority=1)
    assert (await stored(lab, ref.task))["priority"] == 0


async def test_an_unknown_or_foreign_task_is_not_there(lab):
    task = await lab.submit()
    with pytest.raises(NotFound):
        await update(lab, task, by=lab.stranger, priority=1)
    with pytest.raises(NotFound):
        await update(lab, 12345, priority=1)
    assert (await stored(lab, task))["priority"] == 0


async def test_a_bad_change_changes_nothing(lab):
    task = await lab.submit(name="old")
    for changes in ({"name": "new", "max_attempts": 0}, {"idempotency_key": "k"}):
        with pytest.raises(Invalid):
            await update(lab, task, **changes)
    assert (await stored(lab, task))["name"] == "old"


async def test_concurrent_updates_all_take_effect(lab):
    task = await lab.submit()
    changes = [{"name": "new"}, {"priority": 5}, {"max_attempts": 8}, {"labels": {"a": "b"}}]
    await asyncio.gather(*(update(lab, task, **change) for change in changes))
    row = await stored(lab, task)
    assert (row["name"], row["priority"], row["max_attempts"]) == ("new", 5, 8)
    assert row["labels"] == '{"a": "b"}'


async def test_an_idempotency_key_still_refers_to_an_updated_task(lab):
    task = await lab.submit(idempotency_key="k")
    await update(lab, task, priority=5)
    assert await lab.submit(idempotency_key="k") == task
