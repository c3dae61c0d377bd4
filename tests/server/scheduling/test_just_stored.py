"""What was just stored is given away without reading it, and by the same rules as all else."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from duly.server import resource_manager
from duly.server.lines import EARLIEST
from tests.server.lab import seconds
from tests.server.test_quotas import limit

UNKNOWN = 0
"""A shape for which there may be room."""


@pytest.fixture
async def node(lab):
    """Make a node for one task at a time; by now it is known that nothing waits."""
    node = await lab.node(cpu=1)
    await lab.schedule()
    return node


@pytest.fixture
def awaiting(lab, monkeypatch):
    """Let a round wait for tasks of somebody from the beginning of a block, and end with it."""
    monkeypatch.setattr(resource_manager, "EXPECTED", seconds(60))
    manager = lab.parts.resource_manager

    @asynccontextmanager
    async def block(client):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            manager.expect({(client.tenant_id, UNKNOWN)})
            manager._nudged.clear()
            group.create_task(manager.tick())
            while not manager._awaits:
                await asyncio.sleep(0)
            yield

    return block


async def hidden(lab, task):
    """Store a task that would go before `task`, and of which nobody hears."""
    more = json.dumps({"id": task - 1, "priority": 50})
    for table in ("tasks", "live"):
        await lab.conn.execute(
            f"""insert into {table}
                select (jsonb_populate_record(r, $2)).* from {table} r where id = $1""",
            task,
            more,
        )
    return task - 1


async def test_a_line_that_was_empty_is_not_read(lab, node):
    task = await lab.submit(cpu=1)
    other = await hidden(lab, task)
    await lab.schedule()
    assert await lab.run_on(node) == {task}
    # Nor is it after that: it is found by the next count.
    await node.report((await node.poll()).start[0].ref)
    await lab.schedule()
    assert await lab.run_on(node) == set()
    await lab.clock.move(seconds(1))
    assert (await lab.start(node, other)).task == other


async def test_a_line_in_which_something_may_be_is_read(lab, node):
    task = await lab.submit(cpu=1)
    line = lab.client.tenant_id, (await lab.live(task))["shape_id"]
    other = await hidden(lab, task)
    lab.parts.resource_manager._prioritizer.note([(line, EARLIEST)])
    await lab.schedule()
    assert await lab.run_on(node) == {other}


async def test_a_line_that_was_passed_over_is_read(lab, node):
    prioritizer = lab.parts.resource_manager._prioritizer
    prioritizer.pass_over_lines([(lab.stranger.tenant_id, 1)])
    task = await lab.submit(cpu=1)
    other = await hidden(lab, task)
    await lab.schedule()
    assert await lab.run_on(node) == {other}


async def test_none_is_overlooked_that_came_after_one_that_may_wait_for_longer(lab, node):
    waits = ("60s", "20s", "25s", "26s")
    last, first, gone, middle = [await lab.submit(cpu=1, delay_tolerance=wait) for wait in waits]
    await node.report(await lab.start(node, first))
    # It is tried in vain, and the line is read from where it begins.
    await lab.parts.canceller.cancel(lab.client, [gone])
    await lab.schedule()
    for task in (middle, last):
        await node.report(await lab.start(node, task))


async def test_those_of_one_line_go_by_their_rank(lab, node):
    last, first, middle = [await lab.submit(cpu=1, priority=rank) for rank in (1, 3, 2)]
    for task in (first, middle, last):
        await node.report(await lab.start(node, task))


async def test_more_than_a_few_of_one_line_are_read(lab, node):
    tasks = await lab.submit_all([lab.spec(cpu=1) for _ in range(20)])
    other = await hidden(lab, tasks[0].id)
    await lab.schedule()
    assert await lab.run_on(node) == {other}


async def test_what_was_cancelled_meanwhile_is_not_given(lab, node):
    gone, task = await lab.submit(cpu=1, priority=50), await lab.submit(cpu=1)
    await lab.parts.canceller.cancel(lab.client, [gone])
    await lab.schedule()
    assert await lab.status(gone) == "cancelled"
    await lab.schedule()
    assert await lab.run_on(node) == {task}


async def test_a_round_waits_for_what_is_being_stored(lab, node, awaiting):
    await node.report(await lab.run(node, cpu=1))
    await lab.parts.resource_manager.tick()
    async with awaiting(lab.client):
        task = await lab.submit(cpu=1)
    assert await lab.run_on(node) == {task}


async def test_what_a_round_has_waited_for_sets_off_no_other_one(lab, node, awaiting):
    async with awaiting(lab.client):
        lab.parts.resource_manager.offer({UNKNOWN})
    assert not lab.parts.resource_manager._nudged.is_set()


async def test_a_round_that_waits_is_ended_by_whatever_else_happens(lab, node, awaiting):
    ref = await lab.run(node, cpu=0.5)
    await lab.parts.resource_manager.tick()
    async with awaiting(lab.client):
        await node.report(ref)
    assert lab.parts.resource_manager._nudged.is_set()


async def test_a_round_that_waits_keeps_to_the_limits_of_those_it_waits_for(lab, node, awaiting):
    await limit(lab, "acme", running=1)
    first = await lab.run(node, by=lab.stranger, cpu=0.25)
    await node.report(first)
    # Once all is counted anew, it is forgotten that this tenant had something.
    lab.parts.resource_manager._prioritizer.recount()
    await lab.parts.resource_manager.tick()
    async with awaiting(lab.stranger):
        tasks = await lab.submit_all([lab.spec(cpu=0.25)] * 2, by=lab.stranger)
    assert await lab.run_on(node) == {tasks[0].id}
