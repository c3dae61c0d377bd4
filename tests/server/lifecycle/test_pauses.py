"""Pausing and resuming single tasks, whatever happens to them meanwhile."""

import pytest

from duly.model.task import Outcome
from duly.store.tasks import graph_operations
from tests.server.calendar import Calendar
from tests.server.lab import between_placing_and_leasing, seconds
from tests.server.lifecycle.test_dependencies import after, finish
from tests.server.lifecycle.test_graph_operations import (
    CHAIN,
    apply,
    events,
    statuses,
    submit_graph,
)
from tests.server.lifecycle.test_updates import update


async def pause(lab, *tasks, by=None):
    return await lab.components.pauser.pause(by or lab.client, tasks)


async def resume(lab, *tasks, by=None):
    """Resume tasks; return how each goes on."""
    resumed = await lab.components.pauser.resume(by or lab.client, tasks)
    return {task.id: task.status for task in resumed}


async def test_a_paused_task_does_not_start_and_resumes_with_its_former_status(lab):
    node = await lab.node()
    waiting = await lab.submit()
    scheduled = await lab.submit(run_at=lab.clock.now + seconds(1000))
    blocked = await lab.submit(depends_on=[str(waiting)])
    ids = (waiting, scheduled, blocked)
    assert await pause(lab, *ids) == dict.fromkeys(ids, False)
    await lab.sweep()
    await lab.schedule()
    assert await node.starts() == []
    assert [await lab.status(task) for task in ids] == ["paused"] * 3
    assert await pause(lab, *ids) == {}
    assert await resume(lab, *ids) == dict(
        zip(ids, ("waiting", "scheduled", "blocked"), strict=True)
    )
    assert await resume(lab, *ids) == {}
    assert await events(lab, waiting) == ["paused", "resumed"]
    assert (await lab.start(node, waiting)).task == waiting


async def test_a_task_that_became_due_while_paused_waits_when_it_is_resumed(lab):
    task = await lab.submit(run_at=lab.clock.now + seconds(10), delay_tolerance=60)
    await pause(lab, task)
    await lab.clock.move(seconds(100))
    assert await resume(lab, task) == {task: "waiting"}
    assert (await lab.live(task))["start_by"] == lab.clock.now + seconds(60)


async def test_the_time_of_the_pause_is_added_to_start_by_and_no_more(lab):
    """It keeps its place before those that were submitted later."""
    task = await lab.submit(delay_tolerance=60)
    start_by = (await lab.live(task))["start_by"]
    await lab.clock.move(seconds(40))
    await pause(lab, task)
    await lab.clock.move(seconds(500))
    await resume(lab, task)
    row = await lab.live(task)
    assert (row["ready_at"], row["start_by"]) == (lab.clock.now, start_by + seconds(500))
    await lab.clock.move(seconds(10))
    await pause(lab, task)
    await lab.clock.move(seconds(7))
    await resume(lab, task)
    assert (await lab.live(task))["start_by"] == start_by + seconds(507)


async def test_a_pause_records_who_paused_the_task(lab):
    graph, ids = await submit_graph(lab, ("a",), ("b",))
    await pause(lab, ids["a"])
    await apply(lab, graph, "pause")
    tenant = lab.client.tenant_id
    async with lab.database.connection() as conn:
        alone = await graph_operations.read_pause(conn, tenant, ids["a"])
        whole = await graph_operations.read_pause(conn, tenant, ids["b"])
    assert (alone.cause.by, alone.cause.graph) == (lab.client.actor, None)
    assert (whole.cause.by, whole.cause.graph) == (None, str(graph))


async def test_tasks_of_another_tenant_are_neither_paused_nor_resumed(lab):
    task = await lab.submit()
    assert await pause(lab, task, by=lab.stranger) == {}
    assert await lab.status(task) == "waiting"
    await pause(lab, task)
    assert await resume(lab, task, by=lab.stranger) == {}
    assert await lab.status(task) == "paused"


async def test_a_task_paused_between_placement_and_lease_does_not_start(lab):
    node = await lab.node()
    task = await lab.submit()
    await between_placing_and_leasing(lab, pause(lab, task))
    assert await node.starts() == []
    assert await lab.status(task) == "paused"


async def test_a_task_paused_in_its_backoff_keeps_the_rest_of_it(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=3)
    assert await node.report(ref, Outcome.FAILED)
    row = await lab.live(ref.task)
    assert row["status"] == "scheduled"
    await pause(lab, ref.task)
    assert await resume(lab, ref.task) == {ref.task: "scheduled"}
    assert (await lab.live(ref.task))["ready_at"] == row["ready_at"]


async def test_a_running_task_continues_and_is_paused_when_it_fails(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=3)
    other = await lab.run(node)
    assert await pause(lab, ref.task, other.task) == {ref.task: True, other.task: True}
    assert await node.stops(ref, other) == []
    assert await node.report(ref, Outcome.FAILED)
    assert await node.report(other)
    assert await lab.status(ref.task) == "paused"
    assert await lab.status(other.task) == "done"


async def test_a_task_that_is_being_cancelled_is_not_paused(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.components.canceller.cancel(lab.client, [ref.task])
    assert await pause(lab, ref.task) == {}


async def test_a_paused_task_is_cancelled_at_once(lab):
    task = await lab.submit()
    await pause(lab, task)
    assert await lab.components.canceller.cancel(lab.client, [task]) == {task: True}
    assert await resume(lab, task) == {}
    assert await lab.status(task) == "cancelled"


async def test_upstreams_of_a_paused_task_count_and_its_downstreams_wait(lab):
    node = await lab.node()
    first = await lab.submit()
    second = await lab.submit(depends_on=[after(first)], delay_tolerance=60)
    third = await lab.submit(depends_on=[after(second)])
    await pause(lab, second)
    await finish(lab, node, first)
    assert await lab.status(second) == "paused"
    assert await lab.status(third) == "blocked"
    await lab.clock.move(seconds(5))
    assert await resume(lab, second) == {second: "waiting"}
    assert (await lab.live(second))["start_by"] == lab.clock.now + seconds(60)
    await finish(lab, node, second)
    assert await lab.status(third) == "waiting"


async def test_a_paused_task_whose_upstream_fails_for_good_ends(lab):
    node = await lab.node()
    first = await lab.submit(max_attempts=1)
    second = await lab.submit(depends_on=[after(first)])
    await pause(lab, second)
    await finish(lab, node, first, Outcome.FAILED)
    assert await lab.status(second) == "cancelled"


async def test_a_paused_task_can_be_changed_and_stays_paused(lab):
    task = await lab.submit(delay_tolerance=60)
    await lab.clock.move(seconds(20))
    await pause(lab, task)
    await update(lab, task, priority=7, delay_tolerance="90s")
    row = await lab.live(task)
    assert (row["status"], row["is_paused"], row["priority"]) == ("paused", True, 7)
    await lab.clock.move(seconds(100))
    assert await resume(lab, task) == {task: "waiting"}
    assert (await lab.live(task))["start_by"] == lab.clock.now + seconds(70)
    await pause(lab, task)
    await update(lab, task, run_at=(lab.clock.now + seconds(30)).isoformat())
    assert await resume(lab, task) == {task: "scheduled"}


async def test_a_single_task_can_be_resumed_while_its_graph_is_paused(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, *CHAIN)
    await apply(lab, graph, "pause")
    assert await resume(lab, ids["a"]) == {ids["a"]: "waiting"}
    await finish(lab, node, ids["a"])
    assert await statuses(lab, ids) == {"a": "done", "b": "paused", "c": "paused"}
    await pause(lab, ids["b"])
    assert await apply(lab, graph, "resume") == (2, 0)


@pytest.mark.parametrize(
    ("overlap", "then"),
    [("skip", ["paused"]), ("queue", ["paused", "blocked"]), ("cancel_other", ["cancelled", None])],
)
async def test_a_paused_occurrence_has_not_ended(lab, overlap, then):
    calendar = Calendar(lab)
    schedule = await calendar.create(overlap=overlap)
    await calendar.go(1)
    (task,) = await calendar.tasks(schedule)
    await pause(lab, task)
    await calendar.go(2)
    statuses_then = [await lab.status(task) for task in await calendar.tasks(schedule)]
    assert statuses_then == [status or "waiting" for status in then]
