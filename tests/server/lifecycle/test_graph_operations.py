"""Whole graphs that are cancelled, paused and resumed, also by those who find it half done."""

import asyncio

import pytest

from duly.errors import Conflict, NotFound, NotLeading
from duly.model.task import Outcome
from duly.server import wishes as server_wishes
from duly.store import wishes
from duly.store.wishes import WishKind
from tests.server.lab import reason_of, seconds
from tests.server.test_edges import after, finish, statuses
from tests.server.test_timekeeper import believe

CHAIN = (("a",), ("b", "a"), ("c", "b"))


async def submit_graph(lab, *tasks, **fields):
    """Submit a graph, each task a ref with those that it depends on; return its id, and theirs."""
    specs = [
        lab.spec(ref=ref, depends_on=list(upstreams) or None, **fields) for ref, *upstreams in tasks
    ]
    graph, ids = await lab.parts.submitter.submit_graph(lab.client, "g", specs)
    return graph, dict(zip((ref for ref, *_ in tasks), ids, strict=True))


async def wish(lab, graph, kind, *, by=None):
    """Let a wish be carried out to its end; return how many tasks it changed, and how many run."""
    await lab.parts.cluster_manager.tick()
    made = await lab.parts.wishes.make(by or lab.client, graph, WishKind(kind))
    changed = running = 0
    while True:
        carried = await lab.parts.wishes.go_on(made)
        changed, running = changed + carried.changed, running + carried.running
        if carried.is_over:
            assert await lab.count("graph_wishes") == 0
            return changed, running


async def somebody_waits(lab, who):
    """Return once somebody waits for a lock, or `who` had to wait for none."""
    waiting = "select exists (select from pg_locks where not granted)"
    while not who.done() and not await lab.conn.fetchval(waiting):
        await asyncio.sleep(0.005)


async def events(lab, task):
    rows = await lab.conn.fetch(
        "select kind from events where task_id = $1 order by at, kind", task
    )
    return [row["kind"] for row in rows]


async def test_nothing_of_a_paused_graph_starts_until_it_is_resumed(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",), ("b", "a"), ("late",), delay_tolerance=60)
    at = lab.clock.now
    await lab.conn.execute(
        "update live set status = 'scheduled', ready_at = $2 where id = $1",
        ids["late"],
        at + seconds(1000),
    )
    assert await wish(lab, graph, "pause") == (3, 0)
    await lab.schedule()
    assert await node.starts() == []
    assert set((await statuses(lab, ids)).values()) == {"paused"}
    await lab.clock.move(seconds(500))
    node = await lab.rejoin(node)
    assert await wish(lab, graph, "resume") == (3, 0)
    assert await statuses(lab, ids) == {"a": "waiting", "b": "blocked", "late": "scheduled"}
    row = await lab.live(ids["a"])
    assert (row["ready_at"], row["start_by"]) == (lab.clock.now, lab.clock.now + seconds(60))
    assert await events(lab, ids["a"]) == ["paused", "resumed"]
    await finish(lab, node, ids["a"])
    assert await lab.status(ids["b"]) == "waiting"


@pytest.mark.parametrize(("paused_for", "left"), [(10, 50), (200, 0)])
async def test_a_pause_does_not_put_off_what_has_a_time_of_its_own(lab, paused_for, left):
    specs = [
        lab.spec(ref="a", delay_tolerance=600),
        lab.spec(ref="alone", delay_tolerance=600),
        lab.spec(ref="b", delay_tolerance=0, depends_on=["a"], run_at=lab.clock.now + seconds(60)),
    ]
    graph, (first, alone, _) = await lab.parts.submitter.submit_graph(lab.client, "g", specs)
    await wish(lab, graph, "pause")
    await lab.clock.move(seconds(paused_for))
    await wish(lab, graph, "resume")
    rows = [await lab.live(task) for task in (first, alone)]
    assert [row["ready_at"] for row in rows] == [lab.clock.now] * 2
    assert [row["start_by"] - lab.clock.now for row in rows] == [seconds(left), seconds(600)]


async def test_what_a_paused_task_waits_for_is_counted_all_the_same(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, *CHAIN)
    ref = await lab.start(node, ids["a"])
    assert await wish(lab, graph, "pause") == (3, 1)
    assert await node.report(ref)
    await lab.sweep()
    assert await statuses(lab, ids) == {"a": "done", "b": "paused", "c": "paused"}
    assert (await lab.live(ids["b"]))["blocked_by"] == 0
    await lab.schedule()
    assert await node.starts() == []
    assert await wish(lab, graph, "resume") == (2, 0)
    assert await statuses(lab, ids) == {"a": "done", "b": "waiting", "c": "blocked"}


async def test_a_paused_task_that_waits_in_vain_ends(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, *CHAIN, max_attempts=1)
    ref = await lab.start(node, ids["a"])
    await wish(lab, graph, "pause")
    assert await node.report(ref, Outcome.FAILED)
    while await lab.parts.queue_manager.tick():
        pass
    assert await statuses(lab, ids) == {"a": "failed", "b": "cancelled", "c": "cancelled"}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.EXPIRED])
async def test_what_runs_when_its_graph_is_paused_is_not_tried_again_before_it_is_resumed(
    lab, outcome
):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",), max_attempts=3)
    ref = await lab.start(node, ids["a"])
    assert await wish(lab, graph, "pause") == (1, 1)
    assert await lab.status(ids["a"]) == "running"
    assert await node.report(ref, outcome)
    await lab.clock.move(seconds(7200))
    await lab.sweep()
    assert await lab.status(ids["a"]) == "paused"
    assert await wish(lab, graph, "resume") == (1, 0)
    assert await lab.status(ids["a"]) == "waiting"
    assert await events(lab, ids["a"]) == ["pause_requested", "resumed"]


async def test_what_is_lost_while_its_graph_is_paused_waits_for_it_to_be_resumed(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",))
    await lab.start(node, ids["a"])
    await wish(lab, graph, "pause")
    await lab.rejoin(node)
    await lab.sweep()
    assert await lab.status(ids["a"]) == "paused"


async def test_a_running_task_that_is_resumed_before_it_fails_is_tried_again(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",), max_attempts=3)
    ref = await lab.start(node, ids["a"])
    await wish(lab, graph, "pause")
    assert await wish(lab, graph, "resume") == (1, 1)
    assert await node.report(ref, Outcome.EXPIRED)
    assert await lab.status(ids["a"]) == "waiting"


async def test_a_paused_graph_is_paused_once_and_resumed_once(lab):
    graph, ids = await submit_graph(lab, *CHAIN)
    await wish(lab, graph, "pause")
    assert await wish(lab, graph, "pause") == (0, 0)
    await wish(lab, graph, "resume")
    assert await wish(lab, graph, "resume") == (0, 0)
    assert await events(lab, ids["c"]) == ["paused", "resumed"]


async def test_a_cancel_ends_what_waits_and_stops_what_runs(lab):
    node = await lab.node(cpu=0.5)
    graph, ids = await submit_graph(lab, *CHAIN, ("other",))
    outside = await lab.submit(depends_on=[str(ids["c"])])
    ref = await lab.start(node, ids["a"])
    assert await wish(lab, graph, "cancel") == (4, 1)
    assert await statuses(lab, ids) == {
        "a": "running",
        "b": "cancelled",
        "c": "cancelled",
        "other": "cancelled",
    }
    assert [stop.why for stop in await node.stops(ref)] == ["cancelled"]
    assert await wish(lab, graph, "pause") == (0, 0)  # what is to stop is not to go on later
    await node.report(ref, Outcome.CANCELLED)
    await lab.sweep()
    assert await lab.status(ids["a"]) == "cancelled"
    assert reason_of(await lab.end(ids["b"]))["code"] == "cancelled"
    assert reason_of(await lab.end(outside))["code"] == "upstream_failed"


async def test_nothing_starts_because_its_upstream_was_cancelled_with_it(lab, monkeypatch):
    monkeypatch.setattr(server_wishes, "PIECE", 1)
    specs = [lab.spec(ref="a"), lab.spec(ref="b", depends_on=[after("a", "failure")])]
    graph, _ = await lab.parts.submitter.submit_graph(lab.client, None, specs)
    made = await lab.parts.wishes.make(lab.client, graph, WishKind.CANCEL)
    while not (await lab.parts.wishes.go_on(made)).is_over:
        await lab.sweep()
        assert await lab.conn.fetchval("select count(*) from live where status = 'waiting'") == 1
    assert await lab.count("live") == 0


async def test_a_paused_graph_can_be_cancelled(lab):
    graph, ids = await submit_graph(lab, *CHAIN)
    await wish(lab, graph, "pause")
    assert await wish(lab, graph, "cancel") == (3, 0)
    assert set((await statuses(lab, ids)).values()) == {"cancelled"}


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume"])
async def test_the_leader_goes_on_with_what_was_left_half_done(lab, monkeypatch, kind):
    monkeypatch.setattr(server_wishes, "PIECE", 2)
    graph, ids = await submit_graph(lab, *((ref,) for ref in "abcdefg"))
    if kind == "resume":
        await wish(lab, graph, "pause")
    made = await lab.parts.wishes.make(lab.client, graph, WishKind(kind))
    assert (await lab.parts.wishes.go_on(made)).changed == 2
    other = lab.server()
    await other.cluster_manager.tick()
    await lab.clock.move(seconds(5))
    assert not await other.wishes.tick()
    await lab.parts.cluster_manager.tick()
    assert await lab.parts.wishes.tick()
    ended = {"cancel": "cancelled", "pause": "paused", "resume": "waiting"}[kind]
    assert set((await statuses(lab, ids)).values()) == {ended}
    assert await lab.count("graph_wishes") == 0
    assert not await lab.parts.wishes.tick()
    assert (await lab.parts.wishes.go_on(made)).is_over


async def test_the_leader_leaves_alone_what_somebody_is_at(lab):
    graph, _ = await submit_graph(lab, *CHAIN)
    await lab.parts.wishes.make(lab.client, graph, WishKind.PAUSE)
    await lab.clock.move(seconds(4))
    assert not await lab.parts.wishes.tick()
    assert await lab.count("graph_wishes") == 1


async def test_a_wish_takes_the_place_of_the_one_before(lab, monkeypatch):
    monkeypatch.setattr(server_wishes, "PIECE", 1)
    graph, ids = await submit_graph(lab, *CHAIN)
    paused = await lab.parts.wishes.make(lab.client, graph, WishKind.PAUSE)
    await lab.parts.wishes.go_on(paused)
    assert await wish(lab, graph, "resume") == (1, 0)
    assert (await lab.parts.wishes.go_on(paused)) == server_wishes.OVER
    assert await statuses(lab, ids) == {"a": "waiting", "b": "blocked", "c": "blocked"}


@pytest.mark.parametrize("kind", ["pause", "resume"])
async def test_a_cancel_that_is_under_way_stands(lab, kind):
    graph, _ = await submit_graph(lab, *CHAIN)
    await lab.parts.wishes.make(lab.client, graph, WishKind.CANCEL)
    with pytest.raises(Conflict, match="being cancelled"):
        await lab.parts.wishes.make(lab.client, graph, WishKind(kind))
    assert await wish(lab, graph, "cancel") == (3, 0)


@pytest.mark.parametrize("kind", ["cancel", "pause", "resume"])
async def test_a_graph_of_others_is_not_there(lab, kind):
    graph, ids = await submit_graph(lab, *CHAIN)
    with pytest.raises(NotFound):
        await lab.parts.wishes.make(lab.stranger, graph, WishKind(kind))
    with pytest.raises(NotFound):
        await lab.parts.wishes.make(lab.client, ids["a"], WishKind(kind))
    assert await lab.count("graph_wishes") == 0


async def test_a_wish_for_a_graph_that_is_forgotten_ends(lab):
    graph, _ = await submit_graph(lab, *CHAIN)
    await lab.parts.wishes.make(lab.client, graph, WishKind.PAUSE)
    await lab.conn.execute("delete from graphs")
    await lab.clock.move(seconds(5))
    await lab.parts.cluster_manager.tick()
    assert await lab.parts.wishes.tick()
    assert await lab.count("graph_wishes") == 0


async def test_what_is_resumed_is_found_at_once(lab):
    node = await lab.node()
    specs = [lab.spec(ref="a", delay_tolerance=600), lab.spec(ref="b", delay_tolerance=60)]
    graph, ids = await lab.parts.submitter.submit_graph(lab.client, None, specs)
    await wish(lab, graph, "pause")
    await lab.schedule()
    await wish(lab, graph, "resume")
    await lab.schedule()
    assert {ref.task for ref in await node.starts()} == set(ids)


async def test_the_leader_sees_to_the_time_of_what_is_resumed_before_it(lab):
    at = lab.clock.now + seconds(60)
    graph, _ = await submit_graph(lab, ("a",), run_at=at)
    await wish(lab, graph, "pause")
    nudged = lab.parts.queue_manager._nudged
    nudged.clear()
    await wish(lab, graph, "resume")
    assert nudged.is_set()


async def test_a_node_that_waits_for_orders_hears_at_once_of_a_cancel(lab):
    node = await lab.node()
    graph, ids = await submit_graph(lab, ("a",))
    ref = await lab.start(node, ids["a"])
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(ref, wait=20))
        while not lab.parts.polls._waiting._waiting:
            await asyncio.sleep(0)
        await wish(lab, graph, "cancel")
    assert [stop.ref for stop in poll.result().stop] == [ref]


async def test_a_server_whose_term_is_over_carries_nothing_out(lab):
    graph, ids = await submit_graph(lab, *CHAIN)
    await lab.parts.wishes.make(lab.client, graph, WishKind.CANCEL)
    stale = lab.parts.cluster_manager.term
    await lab.clock.move(seconds(30))
    other = lab.server()
    await other.cluster_manager.tick()
    assert other.cluster_manager.term is not None
    believe(lab.parts, stale)
    with pytest.raises(NotLeading):
        await lab.parts.wishes.tick()
    assert await lab.status(ids["c"]) == "blocked"


async def test_a_wish_that_comes_while_another_is_at_a_piece_goes_through_all_of_it(lab):
    graph, _ = await submit_graph(lab, *CHAIN)
    made = await lab.parts.wishes.make(lab.client, graph, WishKind.PAUSE)
    async with (
        asyncio.timeout(10),
        asyncio.TaskGroup() as group,
        lab.database.transaction() as conn,
    ):
        assert await wishes.take_piece(conn, made, limit=1) is not None
        later = group.create_task(lab.parts.wishes.make(lab.client, graph, WishKind.RESUME))
        await somebody_waits(lab, later)
        await wishes.move(conn, made, 2)
    left = await lab.conn.fetchrow("select id, to_go from graph_wishes")
    assert tuple(left) == (later.result().id, 3)
