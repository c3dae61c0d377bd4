import asyncio

import pytest

from duly import wire
from duly.model.task import Outcome
from tests.server.lab import reason_of, seconds


async def cancel(lab, *tasks, by=None):
    return await lab.components.canceller.cancel(by or lab.client, tasks)


async def test_a_scheduled_task_ends_at_once(lab):
    task = await lab.submit(run_at=lab.clock.now + seconds(60))
    assert await cancel(lab, task) == {task: True}
    end = await lab.end(task)
    assert (end["status"], end["attempt"]) == ("cancelled", 0)
    assert reason_of(end)["code"] == "cancelled"
    assert await lab.live(task) is None


async def test_a_waiting_task_ends_at_once_and_never_starts(lab):
    task = await lab.submit()
    assert await cancel(lab, task) == {task: True}
    node = await lab.node()
    await lab.schedule()
    assert await node.starts() == []
    assert await lab.status(task) == "cancelled"


async def test_a_running_task_keeps_its_row_and_resources_until_its_process_is_gone(lab):
    node = await lab.node(cpu=1)
    ref = await lab.run(node, cpu=1)
    other = await lab.submit(cpu=1)
    assert await cancel(lab, ref.task) == {ref.task: False}
    assert (await lab.live(ref.task))["cancel_requested_at"] == lab.clock.now
    await lab.schedule()
    assert await node.starts(ref) == []
    assert await node.report(ref, Outcome.CANCELLED)
    assert await lab.status(ref.task) == "cancelled"
    assert (await lab.start(node, other)).task == other


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_any_later_report_ends_the_task_as_cancelled(lab, outcome):
    node = await lab.node()
    ref = await lab.run(node)
    await cancel(lab, ref.task)
    assert await node.report(ref, outcome, result=b"1")
    end = await lab.end(ref.task)
    assert (end["status"], end["outcome"], end["result"]) == ("cancelled", outcome, None)
    assert await lab.dead_letters() == {}


async def test_a_cancelled_task_that_is_lost_with_its_node_is_cancelled(lab):
    node = await lab.node()
    ref = await lab.run(node, on_lost="fail")
    await cancel(lab, ref.task)
    await lab.rejoin(node)
    await lab.sweep()
    assert await lab.status(ref.task) == "cancelled"
    assert await lab.attempts(ref.task) == [(1, "lost")]


async def test_cancelling_twice_is_cancelling_once(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await cancel(lab, ref.task)
    asked_at = lab.clock.now
    await lab.clock.move(seconds(1))
    assert await cancel(lab, ref.task) == {ref.task: False}
    assert (await lab.live(ref.task))["cancel_requested_at"] == asked_at


async def test_an_ended_task_cannot_be_cancelled(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.report(ref)
    assert await cancel(lab, ref.task) == {}
    assert await lab.status(ref.task) == "done"
    waiting = await lab.submit()
    await cancel(lab, waiting)
    assert await cancel(lab, waiting) == {}


async def test_unknown_tasks_and_tasks_of_other_tenants_are_left_alone(lab):
    node = await lab.node()
    running, waiting = await lab.run(node), await lab.submit()
    later = await lab.submit(run_at=lab.clock.now + seconds(60))
    tasks = [running.task, waiting, later]
    assert await cancel(lab, *tasks, 12345, -1, by=lab.stranger) == {}
    assert [await lab.status(task) for task in tasks] == ["running", "waiting", "scheduled"]
    assert (await lab.live(running.task))["cancel_requested_at"] is None


async def test_many_tasks_are_cancelled_in_one_call(lab):
    node = await lab.node()
    ref, waiting, foreign = await lab.run(node), await lab.submit(), 0
    foreign = await lab.submit(by=lab.stranger)
    cancelled = await cancel(lab, waiting, ref.task, foreign, 99)
    assert cancelled == {ref.task: False, waiting: True}


async def test_the_agent_is_ordered_to_stop_a_cancelled_task(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await cancel(lab, ref.task)
    assert await node.stops(ref) == [wire.Stop(ref=ref, why="cancelled")]


async def test_a_task_cancelled_before_delivery_is_stopped_and_not_started(lab):
    node = await lab.node()
    task = await lab.submit()
    await lab.schedule()
    await cancel(lab, task)
    orders = await node.poll()
    assert orders.start == []
    (stop,) = orders.stop
    assert (stop.ref.task, stop.why) == (task, "cancelled")
    assert await node.report(stop.ref, Outcome.CANCELLED)
    assert await lab.status(task) == "cancelled"


async def test_a_waiting_poll_is_woken_by_a_cancel(lab):
    node = await lab.node()
    ref = await lab.run(node)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(ref, wait=20))
        while not lab.components.polls._wakeups._listeners:
            await asyncio.sleep(0)
        await cancel(lab, ref.task)
    assert [stop.why for stop in poll.result().stop] == ["cancelled"]


async def test_a_client_that_waits_for_a_task_is_woken_by_its_end(lab):
    task = await lab.submit()
    with lab.components.wakeups.listen(task) as listener:
        await cancel(lab, task)
        async with asyncio.timeout(2):
            await listener.wait(30)
