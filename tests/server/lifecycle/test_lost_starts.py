"""Tasks whose nodes are lost before anybody has heard that they had begun there."""

import pytest

from duly.config import RetrySettings, Settings
from duly.model.task import Outcome, Reason
from duly.wire import Measured
from tests.server.lab import reason_of, seconds


@pytest.fixture
def settings():
    return Settings(retries=RetrySettings(base_delay=seconds(8)))


async def lose(lab, task, node, nodes, *, begun=False):
    """Let a task be lost with one of the nodes, which alone has room.

    With `begun`, the node has told before that the task runs.
    """
    row = await lab.live(task)
    if row["status"] == "scheduled":
        await lab.clock.set(row["ready_at"])
        await lab.sweep()
    for one in nodes:
        await lab.parts.cluster_manager.drain(one.id, draining=one is not node)
    ref = await lab.start(await lab.rejoin(node), task)
    if begun:
        await lab.parts.measurements.note(node.id, [Measured(ref, 0.0)])
    await lab.rejoin(node)
    await lab.sweep()


async def test_a_task_that_three_nodes_were_lost_with_is_a_dead_letter(lab):
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
        "message": "Its agent died, or its node stopped answering. "
        "3 agents were lost like this, each as it began this task.",
        "details": {"given_up": "lost_at_start"},
    }


async def test_after_two_nodes_it_begins_apart_from_those_that_were_lost_with_it(lab):
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
async def test_an_attempt_that_had_begun_does_not_count(lab, which, status):
    nodes = [await lab.node() for _ in range(3)]
    task = await lab.submit()
    for number, node in enumerate(nodes):
        await lose(lab, task, node, nodes, begun=number == which)
    assert await lab.status(task) == status


async def test_a_node_that_lived_on_for_long_was_not_lost_as_it_began_the_task(lab):
    nodes = [await lab.node() for _ in range(3)]
    task = await lab.submit()
    await lose(lab, task, nodes[0], nodes)
    await lose(lab, task, nodes[1], nodes)
    await lab.clock.set((await lab.live(task))["ready_at"])
    await lab.sweep()
    await lab.parts.cluster_manager.drain(nodes[2].id, draining=False)
    last = await lab.rejoin(nodes[2])
    await lab.start(last, task)
    for _ in range(13):
        await lab.clock.move(seconds(5))
        await last.heartbeat()
    await lab.rejoin(last)
    await lab.sweep()
    assert await lab.status(task) == "waiting"
    assert await lab.tally(task) == (0, 3)


async def test_what_a_living_node_reports_as_lost_does_not_count(lab):
    node = await lab.node()
    task = await lab.submit()
    for _ in range(4):
        ref = await lab.start(node, task)
        assert await node.report(ref, Outcome.LOST, reason=Reason("end_lost", "Who knows how."))
    await lose(lab, task, node, [node])
    assert await lab.status(task) == "waiting"


async def test_a_task_that_must_not_begin_twice_says_so_instead(lab):
    node = await lab.node()
    task = await lab.submit(on_lost="fail")
    await lose(lab, task, node, [node])
    assert await lab.dead_letters() == {task: "lost"}
