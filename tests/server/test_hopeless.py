"""What no node could ever fit."""

from duly.model.task import Outcome
from tests.server.lab import reason_of, seconds

GRACE = seconds(60)


async def pass_grace(lab, *nodes):
    await lab.schedule()
    await lab.clock.move(GRACE)
    for node in nodes:
        await node.heartbeat()
    await lab.schedule()


async def test_it_is_ended_after_a_grace_with_what_is_missing(lab):
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
    assert "1 cpu" in reason_of(end)["message"]
    assert await lab.dead_letters() == {task: "no_node_can_fit"}
    assert await lab.status(small) == "running"


async def test_a_task_that_came_later_has_a_grace_of_its_own(lab):
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


async def test_a_task_that_is_being_changed_is_not_given_up_for_what_it_was(lab):
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


async def test_a_node_that_is_full_is_no_reason(lab):
    node = await lab.node(cpu=1)
    await lab.run(node, cpu=1)
    task = await lab.submit(cpu=1)
    await pass_grace(lab, node)
    assert await lab.status(task) == "waiting"


async def test_a_known_node_that_is_lost_could_still_come_back(lab):
    large, small = await lab.node(cpu=8), await lab.node(cpu=1)
    await lab.parts.cluster_manager.leave(large.id, large.incarnation)
    task = await lab.submit(cpu=8)
    await pass_grace(lab, small)
    assert await lab.status(task) == "waiting"


async def test_a_node_that_is_draining_could_still_take_it(lab):
    node = await lab.node(cpu=8)
    await lab.parts.cluster_manager.drain(node.id, draining=True)
    task = await lab.submit(cpu=8)
    await pass_grace(lab, node)
    assert await lab.status(task) == "waiting"


async def test_without_any_node_nothing_is_hopeless(lab):
    task = await lab.submit(cpu=1000)
    await pass_grace(lab)
    assert await lab.status(task) == "waiting"


async def test_a_larger_node_that_joins_in_time_takes_it(lab):
    small = await lab.node(cpu=1)
    task = await lab.submit(cpu=8)
    await lab.schedule()
    await lab.clock.move(GRACE - seconds(1))
    large = await lab.node(cpu=8)
    await lab.clock.move(seconds(1))
    await small.heartbeat()
    assert (await lab.start(large, task)).task == task


async def test_a_task_that_ran_before_is_not_hopeless_for_its_retries_sake(lab):
    node = await lab.node(cpu=2)
    ref = await lab.run(node, cpu=2)
    await node.report(ref, Outcome.EXPIRED)
    await lab.rejoin(node, cpu=1)
    await lab.schedule()
    assert await lab.status(ref.task) == "waiting"
