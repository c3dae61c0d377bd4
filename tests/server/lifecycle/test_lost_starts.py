"""Tasks whose nodes are lost before they report that the task has started."""

import pytest

from duly.config import RetrySettings, Settings
from duly.model.task import Outcome, Reason
from duly.wire import MeasuredUsage
from tests.server.lab import reason_of, seconds


@pytest.fixture
def settings():
    return Settings(retries=RetrySettings(base_delay=seconds(8)))


async def lose(lab, task, node, nodes, *, begun=False):
    """Let a task be lost with one of the nodes, which alone has room.

    With `begun`, the node has reported before that the task runs.
    """
    row = await lab.live(task)
    if row["status"] == "scheduled":
        await lab.clock.set(row["ready_at"])
        await lab.sweep()
    for other in nodes:
        await lab.components.cluster_manager.drain(other.id, draining=other is not node)
    ref = await lab.start(await lab.rejoin(node), task)
    if begun:
        await lab.components.measurements.record(node.id, [MeasuredUsage(ref, 0.0)])
    await lab.rejoin(node)
    await lab.sweep()


async def test_a_task_whose_start_lost_three_nodes_is_a_dead_letter(lab):
    nodes = [await lab.node() for _ in range(4)]
    task = await lab.submit(max_attempts=1)
    await lose(lab, task, nodes[0], nodes)
    await lose(lab, task, nodes[1], nodes)
    assert await lab.dead_letters() == {}
    await lose(lab, task, nodes[2], nodes)
    assert await lab.dead_letters() == {task: "lost_at_start"}
    assert await lab.tally(task) == (0, 3)
    assert reason_of(await lab.end(task)) == {
        "code": "lost_at_start",
        "message": "Its node, or the agent on it, stopped responding. "
        "3 agents were lost in this way, each while starting this task.",
        "details": {"given_up": "lost_at_start"},
    }


async def test_after_two_lost_nodes_a_task_is_retried_with_a_delay(lab):
    nodes = [await lab.node() for _ in range(3)]
    task = await lab.submit()
    await lose(lab, task, nodes[0], nodes)
    assert await lab.status(task) == "waiting"
    await lose(lab, task, nodes[1], nodes)
    row = await lab.live(task)
    assert row["status"] == "scheduled"
    assert lab.clock.now < row["ready_at"] <= lab.clock.now + seconds(16)


async def test_a_node_that_is_lost_again_and_again_is_not_the_fault_of_its_task(lab):
    nodes = [await lab.node() for _ in range(3)]
    task = await lab.submit()
    for _ in range(5):
        await lose(lab, task, nodes[0], nodes)
    assert await lab.status(task) == "waiting"
    assert await lab.tally(task) == (0, 5)


async def test_where_there_are_fewer_than_three_nodes_each_agent_counts(lab):
    nodes = [await lab.node(), await lab.node()]
    task = await lab.submit()
    for which in (0, 1, 0):
        assert await lab.dead_letters() == {}
        await lose(lab, task, nodes[which], nodes)
    assert await lab.dead_letters() == {task: "lost_at_start"}


@pytest.mark.parametrize(("which", "status"), [(0, "scheduled"), (2, "waiting")])
async def test_a_lost_attempt_that_had_started_is_no_lost_start(lab, which, status):
    nodes = [await lab.node() for _ in range(3)]
    task = await lab.submit()
    for number, node in enumerate(nodes):
        await lose(lab, task, node, nodes, begun=number == which)
    assert await lab.status(task) == status


async def test_a_node_that_lived_on_for_long_was_not_lost_at_the_start(lab):
    nodes = [await lab.node() for _ in range(3)]
    task = await lab.submit()
    await lose(lab, task, nodes[0], nodes)
    await lose(lab, task, nodes[1], nodes)
    await lab.clock.set((await lab.live(task))["ready_at"])
    await lab.sweep()
    await lab.components.cluster_manager.drain(nodes[2].id, draining=False)
    last = await lab.rejoin(nodes[2])
    await lab.start(last, task)
    for _ in range(13):
        await lab.clock.move(seconds(5))
        await last.heartbeat()
    await lab.rejoin(last)
    await lab.sweep()
    assert await lab.status(task) == "waiting"
    assert await lab.tally(task) == (0, 3)


async def test_a_loss_reported_by_a_live_node_is_no_lost_start(lab):
    node = await lab.node()
    task = await lab.submit()
    for _ in range(4):
        ref = await lab.start(node, task)
        assert await node.report(ref, Outcome.LOST, reason=Reason("end_lost", "Who knows how."))
    await lose(lab, task, node, [node])
    assert await lab.status(task) == "waiting"


async def test_a_task_that_must_not_start_twice_fails_with_that_reason(lab):
    node = await lab.node()
    task = await lab.submit(on_lost="fail")
    await lose(lab, task, node, [node])
    assert await lab.dead_letters() == {task: "lost"}
