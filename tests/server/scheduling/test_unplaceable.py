"""Tasks that fit on no node, even an idle one, fail after a grace."""

import asyncio

import pytest

from duly.errors import NotLeading
from duly.model.task import Outcome
from duly.server.scheduling import unplaceable
from tests.server.lab import reason_of, seconds

GRACE = seconds(60)
WAITS_FOR_A_LOCK = "select exists (select from pg_locks where not granted)"


async def pass_grace(lab, *nodes):
    await lab.schedule()
    await lab.clock.move(GRACE)
    for node in nodes:
        await node.heartbeat()
    await lab.schedule()


async def test_an_unplaceable_task_fails_after_a_grace_with_the_shortage(lab):
    node = await lab.node(cpu=4)
    task, small = await lab.submit(cpu=5), await lab.submit(cpu=1)
    await lab.schedule()
    await lab.clock.move(GRACE - seconds(1))
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    await lab.clock.move(seconds(1))
    await node.heartbeat()
    await lab.schedule()
    end = await lab.end(task)
    assert (end["status"], end["attempt"]) == ("failed", 0)
    assert reason_of(end)["code"] == "no_node_can_fit"
    assert (
        "No node is large enough: it needs 5 CPUs; the largest node has 4."
        in reason_of(end)["message"]
    )
    assert await lab.dead_letters() == {task: "no_node_can_fit"}
    assert await lab.status(small) == "running"


async def test_each_task_has_a_grace_of_its_own(lab):
    node = await lab.node(cpu=1)
    old = await lab.submit(cpu=2)
    await lab.schedule()
    await lab.clock.move(GRACE - seconds(1))
    await lab.schedule()
    young = await lab.submit(cpu=2)
    await lab.clock.move(seconds(1))
    await node.heartbeat()
    await lab.schedule()
    assert await lab.status(old) == "failed"
    assert await lab.status(young) == "waiting"


async def test_a_task_that_is_being_updated_does_not_fail_for_its_old_shape(lab):
    node = await lab.node(cpu=1)
    large, small = await lab.submit(cpu=2), await lab.submit(cpu=1)
    await lab.schedule()
    await lab.clock.move(GRACE)
    await node.heartbeat()
    async with lab.conn.transaction():
        await lab.conn.execute(
            "update live set shape_id = (select shape_id from live where id = $2) where id = $1",
            large,
            small,
        )
        await lab.schedule()
    assert await lab.status(large) == "waiting"


async def test_a_task_that_fits_on_a_full_node_keeps_waiting(lab):
    node = await lab.node(cpu=1)
    await lab.run(node, cpu=1)
    task = await lab.submit(cpu=1)
    await pass_grace(lab, node)
    assert await lab.status(task) == "waiting"


async def test_a_task_that_fits_on_a_lost_node_keeps_waiting(lab):
    large, small = await lab.node(cpu=8), await lab.node(cpu=1)
    await lab.components.cluster_manager.leave(large.id, large.incarnation)
    task = await lab.submit(cpu=8)
    await pass_grace(lab, small)
    assert await lab.status(task) == "waiting"


async def test_a_task_that_fits_on_a_draining_node_keeps_waiting(lab):
    node = await lab.node(cpu=8)
    await lab.components.cluster_manager.drain(node.id, draining=True)
    task = await lab.submit(cpu=8)
    await pass_grace(lab, node)
    assert await lab.status(task) == "waiting"


async def test_without_any_node_no_task_is_unplaceable(lab):
    task = await lab.submit(cpu=1000)
    await pass_grace(lab)
    assert await lab.status(task) == "waiting"


async def test_a_larger_node_that_joins_in_time_runs_the_task(lab):
    small = await lab.node(cpu=1)
    task = await lab.submit(cpu=8)
    await lab.schedule()
    await lab.clock.move(GRACE - seconds(1))
    large = await lab.node(cpu=8)
    await lab.clock.move(seconds(1))
    await small.heartbeat()
    assert (await lab.start(large, task)).task == task


async def test_a_task_that_ran_on_a_node_that_has_shrunk_keeps_waiting(lab):
    node = await lab.node(cpu=2)
    ref = await lab.run(node, cpu=2)
    await node.report(ref, Outcome.EXPIRED)
    await lab.rejoin(node, cpu=1)
    await lab.schedule()
    assert await lab.status(ref.task) == "waiting"


async def submit_misfits(lab, count):
    """Submit tasks of a tenant that fit on no node, each with a shape of its own."""
    specs = [lab.spec(cpu=100 + number) for number in range(count)]
    return [int(answer.id) for answer in await lab.submit_all(specs)]


async def test_many_unplaceable_shapes_do_not_delay_placement(lab):
    node = await lab.node(cpu=4)
    await submit_misfits(lab, 20)
    await lab.schedule()
    await lab.clock.move(GRACE)
    await node.heartbeat()
    await lab.components.cluster_manager.tick()
    other = await lab.submit(by=lab.stranger, cpu=1)
    async with lab.conn.transaction():
        await lab.conn.execute("lock table dead_letters in exclusive mode")
        ending = asyncio.ensure_future(lab.components.unplaceable.tick())
        async with asyncio.timeout(10):
            while not await lab.conn.fetchval(WAITS_FOR_A_LOCK):
                await asyncio.sleep(0)
            await lab.components.resource_manager.tick()
        assert await lab.status(other) == "running"
        assert not ending.done()
    await ending
    assert await lab.count("dead_letters") == 20


async def test_tasks_of_many_unplaceable_shapes_fail_in_few_transactions(lab, monkeypatch):
    monkeypatch.setattr(unplaceable, "MAX_SUBQUEUES_PER_BATCH", 50)
    node = await lab.node(cpu=4)
    tasks = await submit_misfits(lab, 120)
    await pass_grace(lab, node)
    assert await lab.count("ends") == 50
    for _ in range(2):
        await lab.schedule()
    assert await lab.dead_letters() == dict.fromkeys(tasks, "no_node_can_fit")
    assert await lab.conn.fetchval("select count(distinct xmin::text) from ends") == 3
    messages = await lab.conn.fetch("select reason ->> 'message' as message from ends")
    assert len({row["message"] for row in messages}) == 120


async def test_many_unplaceable_tasks_of_a_shape_fail_in_batches(lab, monkeypatch):
    monkeypatch.setattr(unplaceable, "MAX_TASKS_PER_BATCH", 3)
    node = await lab.node(cpu=1)
    tasks = [await lab.submit(cpu=2) for _ in range(5)]
    await pass_grace(lab, node)
    assert await lab.count("ends") == 3
    await lab.schedule()
    assert {await lab.status(task) for task in tasks} == {"failed"}


async def test_a_node_that_joins_between_two_batches_saves_the_rest(lab, monkeypatch):
    monkeypatch.setattr(unplaceable, "MAX_SUBQUEUES_PER_BATCH", 1)
    node = await lab.node(cpu=1)
    tasks = [await lab.submit(cpu=cpu) for cpu in (2, 3)]
    await pass_grace(lab, node)
    await lab.node(cpu=8)
    await lab.components.unplaceable.tick()
    assert sorted([await lab.status(task) for task in tasks]) == ["failed", "waiting"]


async def test_a_leader_whose_term_is_over_fails_nothing(lab):
    node = await lab.node(cpu=1)
    task = await lab.submit(cpu=2)
    await lab.schedule()
    await lab.clock.move(GRACE)
    await node.heartbeat()
    await lab.components.cluster_manager.tick()
    await lab.conn.execute("update terms set term = term + 1")
    with pytest.raises(NotLeading):
        await lab.components.unplaceable.tick()
    assert await lab.status(task) == "waiting"


async def test_a_task_whose_only_node_was_removed_fails_with_that_reason(lab):
    small, large = await lab.node(cpu=1), await lab.node(cpu=4)
    await lab.components.cluster_manager.remove(large.id)
    task = await lab.submit(cpu=3)
    await pass_grace(lab, small)
    assert reason_of(await lab.end(task))["code"] == "node_removed"
