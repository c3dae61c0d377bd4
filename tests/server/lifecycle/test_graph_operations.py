"""Cancelling, pausing and resuming whole graphs, also when the leader takes over half way."""

import asyncio

import pytest

from duly.errors import Conflict, NotFound, NotLeading
from duly.model.task import Outcome
from duly.server.lifecycle import graph_operations as server_operations
from duly.store.tasks import graph_operations
from duly.store.tasks.graph_operations import OperationKind
from tests.server.lab import reason_of, seconds
from tests.server.lifecycle.test_dependencies import after, finish, statuses
from tests.server.recurrence.test_timekeeper import believe

CHAIN = (("a",), ("b", "a"), ("c", "b"))


async def submit_graph(lab, *tasks, **fields):
    """Submit a graph of (ref, *upstreams) tasks; return its id, and the ids of its tasks by ref."""
    specs = [
        lab.spec(ref=ref, depends_on=list(upstreams) or None, **fields) for ref, *upstreams in tasks
    ]
    graph, batch = await lab.components.submitter.submit_graph(lab.client, "g", specs)
    return graph, dict(zip((ref for ref, *_ in tasks), batch.ids, strict=True))


async def apply(lab, graph, kind, *, by=None):
    """Apply an operation to a graph to its end; return the tasks changed, and how many run."""
    await lab.components.cluster_manager.tick()
    operation = await lab.components.graph_operations.request(
        by or lab.client, graph, OperationKind(kind)
    )
    changed = running = 0
    while True:
        progress = await lab.components.graph_operations.run_batch(operation)
        changed, running = changed + progress.changed, running + progress.running
        if progress.is_over:
            assert await lab.count("graph_operations") == 0
            return changed, running


async def until_blocked(lab, who):
    """Return once a transaction waits for a lock, or `who` has finished without waiting."""
    waiting = "select exists (select from pg_locks where not granted)"
    while not who.done() and not await lab.conn.fetchval(waiting):
        await asyncio.sleep(0.005)


async def events(lab, task):
    rows = await lab.conn.fetch(
        "select kind from events where task_id = $1 order by at, kind", task
    )
    return [row["kind"] for row in rows]


async def test_no_task_of_a_paused_graph_starts_until_it_is_resumed(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",), ("b", "a"), ("late",), delay_tolerance=60)
    at = lab.clock.now
    await lab.conn.execute(
        "update live set status = 'scheduled', ready_at = $2 where id = $1",
        ids["late"],
        at + seconds(1000),
    )
    assert await apply(lab, graph, "pause") == (3, 0)
    await lab.schedule()
    assert await node.starts() == []
    assert set((await statuses(lab, ids)).values()) == {"paused"}
    await lab.clock.move(seconds(500))
    node = await lab.rejoin(node)
    assert await apply(lab, graph, "resume") == (3, 0)
    assert await statuses(lab, ids) == {"a": "waiting", "b": "blocked", "late": "scheduled"}
    row = await lab.live(ids["a"])
    assert (row["ready_at"], row["start_by"]) == (lab.clock.now, lab.clock.now + seconds(60))
    assert await events(lab, ids["a"]) == ["paused", "resumed"]
    await finish(lab, node, ids["a"])
    assert await lab.status(ids["b"]) == "waiting"


@pytest.mark.parametrize(("paused_for", "left"), [(10, 50), (200, 0)])
async def test_a_pause_does_not_delay_a_task_with_run_at(lab, paused_for, left):
    specs = [
        lab.spec(ref="a", delay_tolerance=600),
        lab.spec(ref="alone", delay_tolerance=600),
        lab.spec(ref="b", delay_tolerance=0, depends_on=["a"], run_at=lab.clock.now + seconds(60)),
    ]
    graph, batch = await lab.components.submitter.submit_graph(lab.client, "g", specs)
    first, alone, _ = batch.ids
    await apply(lab, graph, "pause")
    await lab.clock.move(seconds(paused_for))
    await apply(lab, graph, "resume")
    rows = [await lab.live(task) for task in (first, alone)]
    assert [row["ready_at"] for row in rows] == [lab.clock.now] * 2
    assert [row["start_by"] - lab.clock.now for row in rows] == [seconds(left), seconds(600)]


async def test_upstreams_of_a_paused_task_are_settled(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, *CHAIN)
    ref = await lab.start(node, ids["a"])
    assert await apply(lab, graph, "pause") == (3, 1)
    assert await node.report(ref)
    await lab.sweep()
    assert await statuses(lab, ids) == {"a": "done", "b": "paused", "c": "paused"}
    assert (await lab.live(ids["b"]))["blocked_by"] == 0
    await lab.schedule()
    assert await node.starts() == []
    assert await apply(lab, graph, "resume") == (2, 0)
    assert await statuses(lab, ids) == {"a": "done", "b": "waiting", "c": "blocked"}


async def test_a_paused_task_whose_upstream_failed_ends(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, *CHAIN, max_attempts=1)
    ref = await lab.start(node, ids["a"])
    await apply(lab, graph, "pause")
    assert await node.report(ref, Outcome.FAILED)
    while await lab.components.queue_manager.tick():
        pass
    assert await statuses(lab, ids) == {"a": "failed", "b": "cancelled", "c": "cancelled"}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.EXPIRED])
async def test_a_running_task_of_a_paused_graph_is_retried_only_after_the_resume(lab, outcome):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",), max_attempts=3)
    ref = await lab.start(node, ids["a"])
    assert await apply(lab, graph, "pause") == (1, 1)
    assert await lab.status(ids["a"]) == "running"
    assert await node.report(ref, outcome)
    await lab.clock.move(seconds(7200))
    await lab.sweep()
    assert await lab.status(ids["a"]) == "paused"
    assert await apply(lab, graph, "resume") == (1, 0)
    assert await lab.status(ids["a"]) == "waiting"
    assert await events(lab, ids["a"]) == ["pause_requested", "resumed"]


async def test_a_task_lost_while_its_graph_is_paused_waits_for_the_resume(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",))
    await lab.start(node, ids["a"])
    await apply(lab, graph, "pause")
    await lab.rejoin(node)
    await lab.sweep()
    assert await lab.status(ids["a"]) == "paused"


async def test_a_running_task_that_is_resumed_before_it_fails_is_retried(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",), max_attempts=3)
    ref = await lab.start(node, ids["a"])
    await apply(lab, graph, "pause")
    assert await apply(lab, graph, "resume") == (1, 1)
    assert await node.report(ref, Outcome.EXPIRED)
    assert await lab.status(ids["a"]) == "waiting"


async def test_a_paused_graph_is_paused_once_and_resumed_once(lab):
    graph, ids = await submit_graph(lab, *CHAIN)
    await apply(lab, graph, "pause")
    assert await apply(lab, graph, "pause") == (0, 0)
    await apply(lab, graph, "resume")
    assert await apply(lab, graph, "resume") == (0, 0)
    assert await events(lab, ids["c"]) == ["paused", "resumed"]


async def test_a_cancel_ends_waiting_tasks_and_stops_running_ones(lab):
    node = await lab.node(cpu=0.5)
    graph, ids = await submit_graph(lab, *CHAIN, ("other",))
    outside = await lab.submit(depends_on=[str(ids["c"])])
    ref = await lab.start(node, ids["a"])
    assert await apply(lab, graph, "cancel") == (4, 1)
    assert await statuses(lab, ids) == {
        "a": "running",
        "b": "cancelled",
        "c": "cancelled",
        "other": "cancelled",
    }
    assert [stop.why for stop in await node.stops(ref)] == ["cancelled"]
    assert await apply(lab, graph, "pause") == (0, 0)  # a task that is being stopped is not paused
    await node.report(ref, Outcome.CANCELLED)
    await lab.sweep()
    assert await lab.status(ids["a"]) == "cancelled"
    assert reason_of(await lab.end(ids["b"]))["code"] == "cancelled"
    assert reason_of(await lab.end(outside))["code"] == "upstream_failed"


async def test_no_task_starts_because_its_upstream_was_cancelled_with_it(lab, monkeypatch):
    monkeypatch.setattr(server_operations, "TASKS_PER_BATCH", 1)
    specs = [lab.spec(ref="a"), lab.spec(ref="b", depends_on=[after("a", "failure")])]
    graph, _ = await lab.components.submitter.submit_graph(lab.client, None, specs)
    operation = await lab.components.graph_operations.request(
        lab.client, graph, OperationKind.CANCEL
    )
    while not (await lab.components.graph_operations.run_batch(operation)).is_over:
        await lab.sweep()
        assert await lab.conn.fetchval("select count(*) from live where status = 'waiting'") == 1
    assert await lab.count("live") == 0


async def test_a_paused_graph_can_be_cancelled(lab):
    graph, ids = await submit_graph(lab, *CHAIN)
    await apply(lab, graph, "pause")
    assert await apply(lab, graph, "cancel") == (3, 0)
    assert set((await statuses(lab, ids)).values()) == {"cancelled"}


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume"])
async def test_the_leader_finishes_an_abandoned_operation(lab, monkeypatch, kind):
    monkeypatch.setattr(server_operations, "TASKS_PER_BATCH", 2)
    graph, ids = await submit_graph(lab, *((ref,) for ref in "abcdefg"))
    if kind == "resume":
        await apply(lab, graph, "pause")
    operation = await lab.components.graph_operations.request(
        lab.client, graph, OperationKind(kind)
    )
    assert (await lab.components.graph_operations.run_batch(operation)).changed == 2
    other = lab.server()
    await other.cluster_manager.tick()
    await lab.clock.move(seconds(5))
    assert not await other.graph_operations.tick()
    await lab.components.cluster_manager.tick()
    assert await lab.components.graph_operations.tick()
    ended = {"cancel": "cancelled", "pause": "paused", "resume": "waiting"}[kind]
    assert set((await statuses(lab, ids)).values()) == {ended}
    assert await lab.count("graph_operations") == 0
    assert not await lab.components.graph_operations.tick()
    assert (await lab.components.graph_operations.run_batch(operation)).is_over


async def test_the_leader_leaves_an_operation_in_progress_alone(lab):
    graph, _ = await submit_graph(lab, *CHAIN)
    await lab.components.graph_operations.request(lab.client, graph, OperationKind.PAUSE)
    await lab.clock.move(seconds(4))
    assert not await lab.components.graph_operations.tick()
    assert await lab.count("graph_operations") == 1


async def test_a_new_operation_replaces_the_one_before(lab, monkeypatch):
    monkeypatch.setattr(server_operations, "TASKS_PER_BATCH", 1)
    graph, ids = await submit_graph(lab, *CHAIN)
    paused = await lab.components.graph_operations.request(lab.client, graph, OperationKind.PAUSE)
    await lab.components.graph_operations.run_batch(paused)
    assert await apply(lab, graph, "resume") == (1, 0)
    assert (
        await lab.components.graph_operations.run_batch(paused)
    ) == server_operations.NOTHING_LEFT
    assert await statuses(lab, ids) == {"a": "waiting", "b": "blocked", "c": "blocked"}


@pytest.mark.parametrize("kind", ["pause", "resume"])
async def test_a_cancel_in_progress_cannot_be_replaced(lab, kind):
    graph, _ = await submit_graph(lab, *CHAIN)
    await lab.components.graph_operations.request(lab.client, graph, OperationKind.CANCEL)
    with pytest.raises(Conflict, match="being cancelled"):
        await lab.components.graph_operations.request(lab.client, graph, OperationKind(kind))
    assert await apply(lab, graph, "cancel") == (3, 0)


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume"])
async def test_a_graph_of_another_tenant_does_not_exist(lab, kind):
    graph, ids = await submit_graph(lab, *CHAIN)
    with pytest.raises(NotFound):
        await lab.components.graph_operations.request(lab.stranger, graph, OperationKind(kind))
    with pytest.raises(NotFound):
        await lab.components.graph_operations.request(lab.client, ids["a"], OperationKind(kind))
    assert await lab.count("graph_operations") == 0


async def test_an_operation_on_a_removed_graph_ends(lab):
    graph, _ = await submit_graph(lab, *CHAIN)
    await lab.components.graph_operations.request(lab.client, graph, OperationKind.PAUSE)
    await lab.conn.execute("delete from graphs")
    await lab.clock.move(seconds(5))
    await lab.components.cluster_manager.tick()
    assert await lab.components.graph_operations.tick()
    assert await lab.count("graph_operations") == 0


async def test_resumed_tasks_are_scheduled_at_once(lab):
    node = await lab.node()
    specs = [lab.spec(ref="a", delay_tolerance=600), lab.spec(ref="b", delay_tolerance=60)]
    graph, batch = await lab.components.submitter.submit_graph(lab.client, None, specs)
    ids = batch.ids
    await apply(lab, graph, "pause")
    await lab.schedule()
    await apply(lab, graph, "resume")
    await lab.schedule()
    assert {ref.task for ref in await node.starts()} == set(ids)


async def test_the_leader_is_woken_for_tasks_resumed_before_their_time(lab):
    at = lab.clock.now + seconds(60)
    graph, _ = await submit_graph(lab, ("a",), run_at=at)
    await apply(lab, graph, "pause")
    nudged = lab.components.queue_manager._nudged
    nudged.clear()
    await apply(lab, graph, "resume")
    assert nudged.is_set()


async def test_a_waiting_poll_receives_a_graph_cancel_at_once(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",))
    ref = await lab.start(node, ids["a"])
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(ref, wait=20))
        while not lab.components.polls._wakeups._listeners:
            await asyncio.sleep(0)
        await apply(lab, graph, "cancel")
    assert [stop.ref for stop in poll.result().stop] == [ref]


async def test_a_server_whose_term_is_over_applies_no_operation(lab):
    graph, ids = await submit_graph(lab, *CHAIN)
    await lab.components.graph_operations.request(lab.client, graph, OperationKind.CANCEL)
    stale = lab.components.cluster_manager.term
    await lab.clock.move(seconds(30))
    other = lab.server()
    await other.cluster_manager.tick()
    assert other.cluster_manager.term is not None
    believe(lab.components, stale)
    with pytest.raises(NotLeading):
        await lab.components.graph_operations.tick()
    assert await lab.status(ids["c"]) == "blocked"


async def test_an_operation_that_replaces_one_mid_batch_covers_the_whole_graph(lab):
    graph, _ = await submit_graph(lab, *CHAIN)
    operation = await lab.components.graph_operations.request(
        lab.client, graph, OperationKind.PAUSE
    )
    async with (
        asyncio.timeout(10),
        asyncio.TaskGroup() as group,
        lab.database.transaction() as conn,
    ):
        assert await graph_operations.lock_batch(conn, operation, limit=1) is not None
        later = group.create_task(
            lab.components.graph_operations.request(lab.client, graph, OperationKind.RESUME)
        )
        await until_blocked(lab, later)
        await graph_operations.advance(conn, operation, 2)
    left = await lab.conn.fetchrow("select id, to_go from graph_operations")
    assert tuple(left) == (later.result().id, 3)
