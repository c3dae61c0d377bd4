"""Tasks that were just stored are leased without reading them, by the same rules as all others."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from duly.server.scheduling import resource_manager
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from tests.server.lab import seconds
from tests.server.scheduling.test_quotas import limit

UNKNOWN = 0
"""The id of a shape that may fit."""


@pytest.fixture
async def node(lab):
    """Join a node for one task at a time; the prioritizer knows that nothing waits."""
    node = await lab.node(cpu=1)
    await lab.schedule()
    return node


@pytest.fixture
def awaiting(lab, monkeypatch):
    """Run a round that waits for tasks of a client during the block, and ends with it."""
    monkeypatch.setattr(resource_manager, "STORE_WAIT_TIMEOUT", seconds(60))
    manager = lab.components.resource_manager

    @asynccontextmanager
    async def block(client):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            manager.expect_tasks({(client.tenant_id, UNKNOWN)})
            manager._nudged.clear()
            group.create_task(manager.tick())
            while not manager._is_waiting_for_tasks:
                await asyncio.sleep(0)
            yield

    return block


async def store_unannounced(lab, task):
    """Store a task that ranks before `task`, without a hint."""
    more = json.dumps({"id": task - 1, "priority": 50})
    for table in ("tasks", "live"):
        await lab.conn.execute(
            f"""insert into {table}
                select (jsonb_populate_record(r, $2)).* from {table} r where id = $1""",
            task,
            more,
        )
    return task - 1


async def test_a_subqueue_that_was_empty_is_not_read(lab, node):
    task = await lab.submit(cpu=1)
    other = await store_unannounced(lab, task)
    await lab.schedule()
    assert await lab.run_on(node) == {task}
    # Nor is the subqueue read after that: the other task is found by the next recount.
    await node.report((await node.poll()).start[0].ref)
    await lab.schedule()
    assert await lab.run_on(node) == set()
    await lab.clock.move(seconds(1))
    assert (await lab.start(node, other)).task == other


async def test_a_subqueue_that_may_have_other_tasks_is_read(lab, node):
    task = await lab.submit(cpu=1)
    key = lab.client.tenant_id, (await lab.live(task))["shape_id"]
    other = await store_unannounced(lab, task)
    lab.components.resource_manager._prioritizer.mark_ready([(key, UNKNOWN_START_BY)])
    await lab.schedule()
    assert await lab.run_on(node) == {other}


async def test_nothing_is_cached_after_subqueues_were_skipped(lab, node):
    prioritizer = lab.components.resource_manager._prioritizer
    prioritizer.skip_subqueues([(lab.stranger.tenant_id, 1)])
    task = await lab.submit(cpu=1)
    other = await store_unannounced(lab, task)
    await lab.schedule()
    assert await lab.run_on(node) == {other}


async def test_a_task_stored_after_one_with_later_start_by_is_not_overlooked(lab, node):
    waits = ("60s", "20s", "25s", "26s")
    last, first, gone, middle = [await lab.submit(cpu=1, delay_tolerance=wait) for wait in waits]
    await node.report(await lab.start(node, first))
    # Its lease fails, and the subqueue is read from its start.
    await lab.components.canceller.cancel(lab.client, [gone])
    await lab.schedule()
    for task in (middle, last):
        await node.report(await lab.start(node, task))


async def test_cached_tasks_of_one_subqueue_start_by_rank(lab, node):
    last, first, middle = [await lab.submit(cpu=1, priority=rank) for rank in (1, 3, 2)]
    for task in (first, middle, last):
        await node.report(await lab.start(node, task))


async def test_a_subqueue_with_many_stored_tasks_is_read(lab, node):
    tasks = await lab.submit_all([lab.spec(cpu=1) for _ in range(20)])
    other = await store_unannounced(lab, tasks[0].id)
    await lab.schedule()
    assert await lab.run_on(node) == {other}


async def test_a_cached_task_that_was_cancelled_is_not_leased(lab, node):
    gone, task = await lab.submit(cpu=1, priority=50), await lab.submit(cpu=1)
    await lab.components.canceller.cancel(lab.client, [gone])
    await lab.schedule()
    assert await lab.status(gone) == "cancelled"
    await lab.schedule()
    assert await lab.run_on(node) == {task}


async def test_a_round_waits_for_tasks_that_are_being_stored(lab, node, awaiting):
    await node.report(await lab.run(node, cpu=1))
    await lab.components.resource_manager.tick()
    async with awaiting(lab.client):
        task = await lab.submit(cpu=1)
    assert await lab.run_on(node) == {task}


async def test_tasks_that_a_round_has_waited_for_start_no_other_round(lab, node, awaiting):
    async with awaiting(lab.client):
        lab.components.resource_manager.nudge_for({UNKNOWN}, lab.clock.now)
    assert not lab.components.resource_manager._nudged.is_set()


async def test_any_other_nudge_ends_the_wait_of_a_round(lab, node, awaiting):
    ref = await lab.run(node, cpu=0.5)
    await lab.components.resource_manager.tick()
    async with awaiting(lab.client):
        await node.report(ref)
    assert lab.components.resource_manager._nudged.is_set()


async def test_a_round_that_waits_keeps_to_the_limits_of_those_it_waits_for(lab, node, awaiting):
    await limit(lab, "acme", running=1)
    first = await lab.run(node, by=lab.stranger, cpu=0.25)
    await node.report(first)
    # Once all is counted anew, it is forgotten that this tenant had something.
    lab.components.resource_manager._prioritizer.request_recount()
    await lab.components.resource_manager.tick()
    async with awaiting(lab.stranger):
        tasks = await lab.submit_all([lab.spec(cpu=0.25)] * 2, by=lab.stranger)
    assert await lab.run_on(node) == {tasks[0].id}
