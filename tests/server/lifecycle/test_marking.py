"""Marking tasks as done or failed from outside, whatever they are doing."""

import asyncio

import pytest

from duly import wire
from duly.config import ExecutionSettings, Settings
from duly.errors import Conflict, Invalid, NotFound
from duly.model.requests.mark_request import Mark
from duly.model.requests.task_request import UniqueRequest
from duly.model.task import Outcome, Status
from duly.store.accounts import audit_log
from tests.server.lab import between_placing_and_leasing, reason_of, seconds
from tests.server.lifecycle.test_cancelling import cancel
from tests.server.lifecycle.test_dependencies import after

TABLES = ("live", "ends", "attempts", "events", "dead_letters", "ended_upstreams", "audit_log")
ENDS = [Status.DONE, Status.FAILED]


async def mark(lab, task, status=Status.DONE, *, result=None, by=None):
    asked = Mark(status, "the bank says so", result)
    await lab.components.marker.mark(by or lab.client, task, asked)


async def snapshot(lab):
    return [await lab.conn.fetch(f"select * from {table} order by 1, 2") for table in TABLES]


async def scheduled(lab, node):
    return await lab.submit(run_at=lab.clock.now + seconds(60))


async def blocked(lab, node):
    return await lab.submit(depends_on=[str(await scheduled(lab, node))])


async def waiting(lab, node):
    return await lab.submit()


async def paused(lab, node):
    task = await lab.submit()
    await lab.components.pauser.pause(lab.client, [task])
    return task


async def running(lab, node):
    return (await lab.run(node)).task


async def retried(lab, node):
    ref = await lab.run(node)
    await node.report(ref, Outcome.FAILED)
    return ref.task


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("make", [scheduled, blocked, waiting, paused, running, retried])
async def test_a_task_is_marked_in_every_status_that_is_not_an_end(lab, make, status):
    node = await lab.node()
    task = await make(lab, node)
    before = await lab.live(task)
    await lab.clock.move(seconds(2))
    result = "[1]" if status is Status.DONE else None
    await mark(lab, task, status, result=result)
    end = await lab.end(task)
    assert await lab.live(task) is None
    assert (end["status"], end["result"], end["attempt"]) == (status, result, before["attempt"])
    assert (end["failures"], end["losses"]) == (before["failures"], before["losses"])
    assert (end["ready_at"], end["start_by"]) == (before["ready_at"], before["start_by"])
    assert end["finished_at"] == lab.clock.now
    assert reason_of(end) == {
        "code": "marked",
        "message": f"Marked as {status} by default/kim: the bank says so",
        "details": {"by": "default/kim", "reason": "the bank says so"},
    }
    letters = {task: "marked"} if status is Status.FAILED else {}
    assert await lab.dead_letters() == letters
    kinds = await lab.conn.fetch("select kind from events where task_id = $1 order by id", task)
    assert kinds[-1]["kind"] == "marked"


async def test_a_marked_task_never_starts(lab):
    node, task = await lab.node(), await lab.submit()
    await mark(lab, task)
    await lab.schedule()
    assert await node.starts() == []


async def test_a_running_attempt_is_recorded_as_cancelled(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.clock.move(seconds(3))
    await mark(lab, ref.task)
    row = await lab.conn.fetchrow("select * from attempts where task_id = $1", ref.task)
    assert (row["attempt"], row["token"], row["outcome"]) == (1, ref.token, "cancelled")
    assert (row["node_id"], row["finished_at"]) == (node.id, lab.clock.now)
    assert (row["started_at"], row["cpu_seconds"], row["wall_seconds"]) == (None, None, None)
    assert reason_of(row)["code"] == "marked"
    end = await lab.end(ref.task)
    assert (end["outcome"], end["node_id"]) == ("cancelled", node.id)


@pytest.mark.parametrize("is_own", [True, False])
async def test_what_was_measured_of_the_running_attempt_is_kept(lab, is_own):
    node = await lab.node()
    ref = await lab.run(node)
    began_at = lab.clock.now + seconds(1)
    await lab.conn.execute(
        "update live set measured_token = $2, running_since = $3, cpu_seconds = 2, "
        "peak_memory_mb = 64 where id = $1",
        ref.task,
        ref.token if is_own else ref.token - 1,
        began_at,
    )
    await lab.clock.move(seconds(5))
    await mark(lab, ref.task)
    row = await lab.conn.fetchrow("select * from attempts where task_id = $1", ref.task)
    told = (row["started_at"], row["cpu_seconds"], row["peak_memory_mb"], row["wall_seconds"])
    assert told == ((began_at, 2, 64, 4) if is_own else (None,) * 4)
    assert (await lab.end(ref.task))["started_at"] == told[0]


async def test_the_node_is_told_to_stop_a_marked_attempt(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await mark(lab, ref.task)
    stop = wire.Stop(ref=ref, why="cancelled", is_settled=True)
    assert await node.stops(ref) == [stop]
    assert await node.heartbeat(ref) == [stop]


async def test_a_task_marked_before_its_delivery_is_not_started(lab):
    node, task = await lab.node(), await lab.submit()
    await node.poll()
    await lab.schedule()
    assert await lab.status(task) == "running"
    await mark(lab, task)
    orders = await node.poll()
    assert (orders.start, [stop.ref.task for stop in orders.stop]) == ([], [task])


async def test_a_waiting_poll_is_woken_by_a_mark(lab):
    node = await lab.node()
    ref = await lab.run(node)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(ref, wait=20))
        while not lab.components.polls._wakeups._listeners:
            await asyncio.sleep(0)
        await mark(lab, ref.task)
    assert [stop.is_settled for stop in poll.result().stop] == [True]


async def test_a_client_that_waits_for_a_task_is_woken_by_its_mark(lab):
    task = await lab.submit()
    with lab.components.wakeups.listen(task) as listener:
        await mark(lab, task)
        async with asyncio.timeout(2):
            await listener.wait(30)


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("status", ENDS)
async def test_a_late_report_of_a_marked_attempt_is_stale(lab, status, outcome):
    node = await lab.node()
    ref = await lab.run(node)
    await mark(lab, ref.task, status)
    before = await snapshot(lab)
    assert not await node.report(ref, outcome, result=b"2")
    assert await snapshot(lab) == before


async def test_the_loss_of_its_node_changes_nothing_for_a_marked_task(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await mark(lab, ref.task)
    before = await snapshot(lab)
    await lab.rejoin(node)
    await lab.sweep()
    assert await snapshot(lab) == before


async def test_a_task_that_is_being_cancelled_can_be_marked(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await cancel(lab, ref.task)
    await mark(lab, ref.task)
    assert not await node.report(ref, Outcome.CANCELLED)
    assert await lab.status(ref.task) == "done"


async def test_a_task_marked_between_placing_and_leasing_is_not_leased(lab):
    node, task = await lab.node(), await lab.submit()
    await between_placing_and_leasing(lab, mark(lab, task))
    assert await node.starts() == []
    assert (await lab.status(task), await lab.attempts(task)) == ("done", [])


async def test_repeating_a_mark_changes_nothing(lab):
    task = await lab.submit()
    await mark(lab, task, result="1")
    before = await snapshot(lab)
    await mark(lab, task, result="2")
    assert await snapshot(lab) == before


async def test_a_task_that_has_ended_otherwise_cannot_be_marked(lab):
    node = await lab.node()
    done, marked, cancelled = await lab.run(node), await lab.submit(), await lab.submit()
    await node.report(done)
    await mark(lab, marked, Status.FAILED)
    await cancel(lab, cancelled)
    before = await snapshot(lab)
    for task, status in (
        (done.task, "is done"),
        (marked, "has failed"),
        (cancelled, "was cancelled"),
    ):
        with pytest.raises(Conflict, match=f"Task {task} {status}; only"):
            await mark(lab, task)
    assert await snapshot(lab) == before


async def test_tasks_of_other_tenants_and_unknown_ones_are_not_found(lab):
    node = await lab.node()
    ref, waits = await lab.run(node), await lab.submit()
    before = await snapshot(lab)
    for task in (ref.task, waits, 12345):
        with pytest.raises(NotFound, match=f"There is no task '{task}'"):
            await mark(lab, task, by=lab.stranger)
    assert await snapshot(lab) == before


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize(
    ("status", "then"),
    [
        (Status.DONE, {"success": "waiting", "failure": "cancelled", "always": "waiting"}),
        (Status.FAILED, {"success": "cancelled", "failure": "waiting", "always": "waiting"}),
    ],
)
async def test_dependants_are_freed_or_cancelled(lab, status, then, runs):
    node = await lab.node()
    task = (await lab.run(node)).task if runs else await lab.submit()
    dependants = {on: await lab.submit(depends_on=[after(task, on)]) for on in then}
    await mark(lab, task, status)
    await lab.sweep()
    assert {on: await lab.status(one) for on, one in dependants.items()} == then
    assert await lab.count("ended_upstreams") == 0


async def test_a_blocked_task_that_was_marked_is_not_touched_by_its_upstream(lab):
    node, first = await lab.node(), await lab.submit()
    second = await lab.submit(depends_on=[str(first)])
    third = await lab.submit(depends_on=[str(second)])
    await mark(lab, second)
    await lab.sweep()
    assert await lab.status(third) == "waiting"
    await mark(lab, first, Status.FAILED)
    await lab.sweep()
    assert (await lab.status(second), await lab.status(third)) == ("done", "waiting")
    assert (await lab.start(node, third)).task == third


async def test_a_mark_is_in_the_audit_log_once(lab):
    task = await lab.submit()
    async with lab.database.connection() as conn:
        before = await audit_log.read(conn, action="task.mark")
        await mark(lab, task, Status.FAILED)
        await mark(lab, task, Status.FAILED)
        entries = await audit_log.read(conn, action="task.mark")
    # The log is never emptied, and another test may have had a task with this id.
    (entry,) = [entry for entry in entries if entry not in before]
    assert (entry.target, entry.tenant, entry.actor) == (str(task), "default", "default/kim")
    assert entry.details == {"status": "failed", "reason": "the bank says so"}


async def test_a_marked_task_gives_up_its_unique_key(lab):
    first = await lab.submit(unique=UniqueRequest(key="nightly"))
    await mark(lab, first)
    assert await lab.submit(unique=UniqueRequest(key="nightly")) != first


async def test_a_result_is_no_larger_than_the_task_may_leave(lab):
    marker = lab.server(Settings(execution=ExecutionSettings(result_limit=4))).marker
    task = await lab.submit()
    with pytest.raises(Invalid, match="it has 5 bytes"):
        await marker.mark(lab.client, task, Mark(Status.DONE, "ok", "12345"))
    assert await lab.status(task) == "waiting"
    await marker.mark(lab.client, task, Mark(Status.DONE, "ok", "1234"))
    assert (await lab.end(task))["result"] == "1234"
