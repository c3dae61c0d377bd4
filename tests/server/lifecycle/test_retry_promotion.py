"""A task that failed is retried in the queue of the next higher level."""

from datetime import timedelta

import msgspec
import pytest

from duly.config import SchedulingSettings
from duly.model.task import Outcome
from duly.store.attempts.leases import read_shapes
from tests.server.lab import FAILURE, seconds
from tests.server.scheduling.test_queues import later, own_queue, settle


async def test_a_failed_task_is_retried_in_the_next_higher_queue_and_billed_as_submitted(lab):
    node = await lab.node()
    await own_queue(lab)
    task = await lab.submit(cpu=1, queue="bulk", max_attempts=9)
    queues = []
    for _ in range(5):
        ref = await lab.start(node, task)
        queues.append(await stored_queue(lab, task))
        await node.report(ref, Outcome.FAILED)
        await lab.clock.move(timedelta(hours=1))
        await node.heartbeat()
        await lab.sweep()
    assert queues == ["bulk", None, "periodic", "urgent", "urgent"]
    submitted = "select s.queue from tasks t join shapes s on s.id = t.shape_id where t.id = $1"
    assert await lab.conn.fetchval(submitted, task) == "bulk"


async def test_a_retry_keeps_all_of_its_shape_but_the_queue(lab):
    node = await lab.node(labels={"zone": "a"})
    task = await lab.submit(
        cpu=1,
        requires={"zone": "a"},
        concurrency={"key": "k", "limit": 2},
        uses=["stripe"],
        max_attempts=3,
    )
    before = await stored_shape(lab, task)
    await settle(lab)
    (ref,) = await node.starts()
    await node.report(ref, Outcome.FAILED)
    after = await stored_shape(lab, task)
    assert (before.queue, after.queue) == (None, "periodic")
    assert msgspec.structs.replace(after, queue=None) == before
    assert after.uses == ("stripe",)


async def test_a_throttled_task_keeps_its_queue_however_often_it_is_tried(lab):
    node = await lab.node()
    task = await lab.submit(cpu=1, uses=["stripe"], max_attempts=1)
    for _ in range(3):
        await settle(lab)
        (ref,) = await node.starts()
        await node.report(ref, Outcome.FAILED, exit_code=75, reason=FAILURE)
        await lab.clock.move(timedelta(hours=1))
        await node.heartbeat()
        await lab.sweep()
    assert (await lab.live(task))["failures"] == 0
    assert await stored_queue(lab, task) is None


async def stored_shape(lab, task):
    """Return the shape of a live task."""
    shape_id = await lab.conn.fetchval("select shape_id from live where id = $1", task)
    async with lab.database.connection() as conn:
        return (await read_shapes(conn, [shape_id]))[shape_id]


async def stored_queue(lab, task):
    """Return the queue of a live task."""
    statement = "select s.queue from live l join shapes s on s.id = l.shape_id where l.id = $1"
    return await lab.conn.fetchval(statement, task)


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.EXPIRED, Outcome.PREEMPTED])
async def test_a_task_that_did_not_fail_itself_keeps_its_queue(lab, outcome):
    node = await lab.node()
    ref = await lab.run(node, cpu=1)
    assert await node.report(ref, outcome)
    assert (await lab.live(ref.task))["attempt"] == 1
    assert await stored_queue(lab, ref.task) is None


async def test_the_plan_decides_whether_a_retry_becomes_urgent(lab):
    await lab.conn.execute("update tenants set plan = 'free' where name = 'acme'")
    try:
        node = await lab.node()
        task = await lab.submit(cpu=1, max_attempts=9, by=lab.stranger)
        for _ in range(3):
            ref = await lab.start(node, task)
            await node.report(ref, Outcome.FAILED)
            await lab.clock.move(timedelta(hours=1))
            await node.heartbeat()
            await lab.sweep()
        assert await stored_queue(lab, task) == "periodic"
    finally:
        await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'acme'")


async def test_the_audit_finds_nothing_wrong_with_a_paused_queue_and_a_promoted_retry(lab):
    node = await lab.node()
    ref = await lab.run(node, cpu=1)
    await node.report(ref, Outcome.FAILED)
    await lab.components.queues.pause(lab.client, "delayable")
    waiting = await lab.submit(cpu=1, delay_tolerance=0)
    await lab.clock.move(seconds(12))
    await lab.sweep()
    await settle(lab)
    (again,) = await node.starts()
    for _ in range(20):
        await later(lab, node, again, 60)
        await lab.components.auditor.tick()
    assert (await lab.status(waiting), await stored_queue(lab, ref.task)) == ("waiting", "periodic")
    drift = await lab.conn.fetch("select drift from audits where scope = 'live'")
    assert [row["drift"] for row in drift] in ([{}], ["{}"])


async def test_without_the_setting_a_retry_keeps_its_queue(lab):
    settings = msgspec.structs.replace(
        lab.settings, scheduling=SchedulingSettings(promote_retries=False)
    )
    node = await lab.node()
    ref = await lab.run(node, cpu=1)
    node.components = lab.server(settings)
    await node.report(ref, Outcome.FAILED)
    assert await stored_queue(lab, ref.task) is None
