"""Dependencies: when blocked tasks may start, and when they are cancelled."""

import pytest

from duly.errors import Invalid, KeyReused
from duly.model.graph import DependencyRequest
from duly.model.task import Outcome
from duly.store.maintenance import repairs
from duly.store.tasks import subqueues, views
from tests.server.lab import reason_of, seconds
from tests.server.lifecycle.test_cancelling import cancel


def after(task, on="success"):
    return DependencyRequest(task=str(task), on=on)


async def finish(lab, node, task, outcome=Outcome.SUCCEEDED):
    """Run a task on the node, to its end, and let the leader tell who waits for it."""
    ref = await lab.start(node, task)
    assert await node.report(ref, outcome)
    await lab.sweep()


async def submit_batch(lab, *tasks, **how):
    """Submit tasks, each a ref with the refs that it depends on; return ids by ref."""
    specs = [lab.spec(ref=ref, depends_on=list(upstreams) or None) for ref, *upstreams in tasks]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs, **how)).ids
    return dict(zip((ref for ref, *_ in tasks), ids, strict=True))


async def statuses(lab, ids):
    return {ref: await lab.status(task) for ref, task in ids.items()}


async def test_a_task_waits_until_its_upstream_is_done(lab):
    node = await lab.node()
    first = await lab.submit()
    second = await lab.submit(depends_on=[str(first)], delay_tolerance=60)
    assert await lab.status(second) == "blocked"
    await lab.sweep()
    assert await lab.status(second) == "blocked"
    await lab.clock.move(seconds(100))
    node = await lab.rejoin(node)
    await finish(lab, node, first)
    row = await lab.live(second)
    assert (row["status"], row["blocked_by"]) == ("waiting", 0)
    assert row["ready_at"] == lab.clock.now
    assert row["start_by"] == lab.clock.now + seconds(60)
    assert (await lab.start(node, second)).task == second
    assert await lab.count("ended_upstreams") == 0


async def test_a_task_waits_for_the_last_of_its_upstreams(lab):
    node = await lab.node()
    ids = [await lab.submit() for _ in range(3)]
    last = await lab.submit(depends_on=[str(task) for task in ids])
    for left, task in zip((2, 1), ids, strict=False):
        await finish(lab, node, task)
        assert (await lab.live(last))["blocked_by"] == left
    await finish(lab, node, ids[2])
    assert await lab.status(last) == "waiting"


async def test_upstreams_that_end_together_are_counted_together(lab):
    node = await lab.node()
    ids = [await lab.submit() for _ in range(3)]
    last = await lab.submit(depends_on=[str(task) for task in ids])
    for task in ids:
        ref = await lab.start(node, task)
        assert await node.report(ref)
    await lab.sweep()
    assert await lab.status(last) == "waiting"


async def test_a_task_whose_time_has_not_come_is_scheduled_once_its_upstream_is_done(lab):
    node = await lab.node()
    first = await lab.submit()
    at = lab.clock.now + seconds(60)
    second = await lab.submit(depends_on=[str(first)], run_at=at, delay_tolerance=30)
    await finish(lab, node, first)
    row = await lab.live(second)
    assert (row["status"], row["ready_at"]) == ("scheduled", at)
    assert row["start_by"] == at + seconds(30)
    await lab.clock.move(seconds(60))
    await lab.sweep()
    assert await lab.status(second) == "waiting"


@pytest.mark.parametrize(
    ("on", "outcome", "status", "code"),
    [
        ("success", Outcome.SUCCEEDED, "waiting", None),
        ("success", Outcome.FAILED, "cancelled", "upstream_failed"),
        ("failure", Outcome.SUCCEEDED, "cancelled", "upstream_succeeded"),
        ("failure", Outcome.FAILED, "waiting", None),
        ("always", Outcome.SUCCEEDED, "waiting", None),
        ("always", Outcome.FAILED, "waiting", None),
    ],
)
@pytest.mark.parametrize("late", [False, True])
async def test_how_an_upstream_ends_decides(lab, on, outcome, status, code, late):
    """Also when it has ended by the time its dependant is submitted."""
    node = await lab.node()
    first = await lab.submit(max_attempts=1)
    if late:
        await finish(lab, node, first, outcome)
    second = await lab.submit(depends_on=[after(first, on)])
    if not late:
        await finish(lab, node, first, outcome)
    assert await lab.status(second) == status
    if code is not None:
        end = reason_of(await lab.end(second))
        assert (end["code"], end["details"]["upstream"]) == (code, str(first))


@pytest.mark.parametrize("on", ["success", "failure"])
async def test_a_cancelled_upstream_counts_as_failed(lab, on):
    first = await lab.submit()
    second = await lab.submit(depends_on=[after(first, on)])
    await cancel(lab, first)
    await lab.sweep()
    assert await lab.status(second) == ("waiting" if on == "failure" else "cancelled")


async def test_a_failure_that_is_retried_decides_nothing(lab):
    node = await lab.node()
    first = await lab.submit(max_attempts=2)
    second = await lab.submit(depends_on=[str(first)])
    await finish(lab, node, first, Outcome.FAILED)
    assert await lab.status(second) == "blocked"


async def test_a_failure_propagates_downstream_until_a_condition_allows_it(lab):
    node = await lab.node()
    ids = await submit_batch(
        lab,
        ("a",),
        ("b", "a"),
        ("c", "b"),
        ("other",),
        ("d", "c", "other"),
        ("clean", DependencyRequest(task="c", on="always"), "other"),
        ("mourn", DependencyRequest(task="d", on="failure")),
    )
    await cancel(lab, ids["a"])
    await lab.sweep()
    assert await statuses(lab, ids) == {
        "a": "cancelled",
        "b": "cancelled",
        "c": "cancelled",
        "other": "waiting",
        "d": "cancelled",
        "clean": "blocked",
        "mourn": "waiting",
    }
    assert reason_of(await lab.end(ids["d"]))["details"] == {
        "upstream": str(ids["c"]),
        "status": "cancelled",
    }
    await finish(lab, node, ids["other"])
    assert await lab.status(ids["clean"]) == "waiting"


async def test_deep_and_wide_failures_propagate_in_bounded_batches(lab, monkeypatch):
    monkeypatch.setattr("duly.server.lifecycle.dependency_resolver.EDGES_PER_TRANSACTION", 10)
    chain = [("t0",), *((f"t{n}", f"t{n - 1}") for n in range(1, 40))]
    ids = await submit_batch(lab, *chain, *((f"w{n}", "t0") for n in range(35)))
    await cancel(lab, ids["t0"])
    rounds = 1
    while await lab.components.queue_manager.tick():
        rounds += 1
    assert set((await statuses(lab, ids)).values()) == {"cancelled"}
    assert rounds > 5
    assert await lab.count("ended_upstreams") == 0


async def test_a_wide_success_propagates_in_bounded_batches(lab, monkeypatch):
    monkeypatch.setattr("duly.server.lifecycle.dependency_resolver.EDGES_PER_TRANSACTION", 10)
    node = await lab.node()
    ids = await submit_batch(lab, ("a",), *((f"w{n}", "a") for n in range(35)))
    ref = await lab.start(node, ids.pop("a"))
    assert await node.report(ref)
    rounds = 1
    while await lab.components.queue_manager.tick():
        rounds += 1
    assert set((await statuses(lab, ids)).values()) == {"waiting"}
    assert rounds == 4


async def test_a_diamond_may_be_given_in_any_order(lab):
    node = await lab.node()
    ids = await submit_batch(lab, ("end", "left", "right"), ("left", "a"), ("right", "a"), ("a",))
    assert ids["a"] < min(ids["left"], ids["right"]) <= max(ids["left"], ids["right"]) < ids["end"]
    for task in ("a", "left", "right", "end"):
        await finish(lab, node, ids[task])
    assert set((await statuses(lab, ids)).values()) == {"done"}


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([("a", "a")], "a → a"),
        ([("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")], "a → b → c → a"),
        ([("a", "nobody")], "'nobody'"),
        ([("a",), ("a",)], r"tasks\[1\] has the ref 'a' already"),
        ([("a", "b", "b"), ("b",)], "'b' is named twice"),
        ([("a", "12345")], "there is no task '12345'"),
    ],
)
async def test_an_invalid_graph_is_refused_and_nothing_is_stored(lab, tasks, message):
    with pytest.raises(Invalid, match=message):
        await submit_batch(lab, ("fine",), *tasks)
    assert await lab.count("tasks") == 0


async def test_an_upstream_of_another_tenant_does_not_exist(lab):
    theirs = await lab.submit(by=lab.stranger)
    with pytest.raises(Invalid, match=f"there is no task '{theirs}'"):
        await lab.submit(depends_on=[str(theirs)])
    assert not (await lab.live(theirs))["has_dependants"]


async def test_a_key_stands_for_the_same_edges(lab):
    first, other = await lab.submit(), await lab.submit()
    second = await lab.submit(depends_on=[str(first)], idempotency_key="k")
    assert await lab.submit(depends_on=[str(first)], idempotency_key="k") == second
    assert (await lab.live(second))["blocked_by"] == 1
    with pytest.raises(KeyReused):
        await lab.submit(depends_on=[str(other)], idempotency_key="k")


async def test_a_batch_with_a_key_is_stored_once_and_answered_in_its_order(lab):
    tasks = [("b", "a"), ("a",)]
    ids = await submit_batch(lab, *tasks, key="k")
    assert await submit_batch(lab, *tasks, key="k") == ids
    assert ids["a"] < ids["b"]
    assert await lab.count("edges") == 1


async def test_a_task_of_a_batch_may_be_one_that_was_there_before(lab):
    node = await lab.node()
    known = await lab.submit(idempotency_key="k", ref="a")
    await finish(lab, node, known)
    specs = [
        lab.spec(ref="a", idempotency_key="k"),
        lab.spec(ref="b", depends_on=["a"]),
        lab.spec(ref="c", depends_on=["b", str(known)]),
    ]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    assert ids[0] == known
    assert [await lab.status(task) for task in ids] == ["done", "waiting", "blocked"]
    assert (await lab.live(ids[2]))["blocked_by"] == 1


async def test_a_blocked_task_can_be_changed_and_stays_blocked(lab):
    node = await lab.node()
    first = await lab.submit()
    second = await lab.submit(depends_on=[str(first)])
    await lab.components.updater.update(lab.client, second, {"priority": 7, "name": "x"})
    row = await lab.live(second)
    assert (row["status"], row["priority"]) == ("blocked", 7)
    with pytest.raises(Invalid, match="it cannot be changed"):
        await lab.components.updater.update(lab.client, second, {"depends_on": []})
    await finish(lab, node, first)
    assert await lab.status(second) == "waiting"


async def test_a_cancelled_dependant_stays_so_when_its_upstream_is_done(lab):
    node = await lab.node()
    first = await lab.submit()
    second = await lab.submit(depends_on=[str(first)])
    await cancel(lab, second)
    await finish(lab, node, first)
    assert await lab.status(second) == "cancelled"


async def test_a_replay_has_no_upstreams(lab):
    first = await lab.submit()
    second = await lab.submit(depends_on=[str(first)])
    await cancel(lab, first)
    await lab.sweep()
    assert await lab.status(await lab.components.replayer.replay(lab.client, second)) == "waiting"


async def test_the_downstream_of_an_unplaceable_task_learns_of_its_failure(lab, settings):
    await lab.node()
    first = await lab.submit(cpu=1000)
    second = await lab.submit(depends_on=[str(first)])
    await lab.schedule()
    await lab.clock.move(settings.scheduling.unplaceable_after + seconds(1))
    await lab.schedule()
    await lab.sweep()
    assert [await lab.status(task) for task in (first, second)] == ["failed", "cancelled"]


async def test_two_names_of_one_task_count_once(lab):
    known = await lab.submit(idempotency_key="k", ref="a")
    specs = [
        lab.spec(ref="a", idempotency_key="k"),
        lab.spec(ref="b", depends_on=["a", str(known)]),
    ]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    assert (await lab.live(ids[1]))["blocked_by"] == 1


async def test_the_audit_restores_upstreams_and_not_blocked_tasks(lab):
    node = await lab.node()
    first = await lab.submit()
    second = await lab.submit(depends_on=[str(first)])
    third = await lab.submit(depends_on=[str(second)])
    await lab.conn.execute("delete from live where id = any($1)", [first, second])
    async with lab.database.transaction() as conn:
        assert await repairs.restore(conn, first)
        assert not await repairs.restore(conn, second)
    assert (await lab.live(first))["has_dependants"]
    await finish(lab, node, first)
    assert await lab.status(third) == "blocked"
    assert await lab.count("ended_upstreams") == 0


async def test_of_equally_urgent_tasks_the_longest_path_ahead_starts_first(lab):
    node = await lab.node(cpu=1)
    ids = await submit_batch(
        lab, ("alone",), ("short",), ("s1", "short"), ("long",), ("l1", "long"), ("l2", "l1")
    )
    assert [(await lab.live(ids[ref]))["remaining_path"] for ref in ("alone", "short", "long")] == [
        0,
        1,
        2,
    ]
    tenant = lab.client.tenant_id
    ahead = [
        await views.count_ahead(lab.conn, tenant, ids[ref], limit=9)
        for ref in ("long", "short", "alone")
    ]
    assert ahead == [0, 1, 2]
    begun = []
    while len(begun) < len(ids):
        await lab.schedule()
        started = {ref.task: ref for ref in await node.starts()}
        begun += sorted(started)
        for ref in started.values():
            assert await node.report(ref)
        await lab.sweep()
    names = {task: ref for ref, task in ids.items()}
    assert [names[task] for task in begun[:2]] == ["short", "long"]


async def test_an_urgent_downstream_makes_its_upstreams_urgent(lab):
    node = await lab.node()
    specs = [
        lab.spec(ref="a", delay_tolerance=600, max_attempts=2),
        lab.spec(ref="b", delay_tolerance=600, depends_on=["a"]),
        lab.spec(ref="c", delay_tolerance=7, depends_on=["b"]),
        lab.spec(ref="beside", delay_tolerance=600, depends_on=["a"]),
    ]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    due = [(await lab.live(task))["start_by"] - lab.clock.now for task in ids]
    assert due == [seconds(7), seconds(7), seconds(7), seconds(600)]
    row = await lab.live(ids[0])
    line = {(row["tenant_id"], row["shape_id"]): subqueues.HeadRange(row["start_by"], 1)}
    (head,) = await subqueues.read_heads(lab.conn, line)
    assert (head.id, head.delay_tolerance) == (ids[0], seconds(7))
    ref = await lab.start(node, ids[0])
    await lab.clock.move(seconds(3))
    assert await node.report(ref, Outcome.FAILED)
    row = await lab.live(ids[0])
    assert row["start_by"] == (row["ready_at"] + seconds(7)).replace(microsecond=0)
    await lab.clock.set(row["ready_at"])
    await lab.sweep()
    await finish(lab, await lab.rejoin(node), ids[0])
    assert (await lab.live(ids[1]))["start_by"] == lab.clock.now.replace(microsecond=0) + seconds(7)
    await lab.components.updater.update(lab.client, ids[1], {"delay_tolerance": 900})
    assert (await lab.live(ids[1]))["start_by"] == lab.clock.now.replace(microsecond=0) + seconds(7)


async def test_a_downstream_with_run_at_lets_its_upstreams_wait_until_then(lab):
    node = await lab.node()
    at = lab.clock.now + seconds(60)
    specs = [
        lab.spec(ref="a", delay_tolerance=600),
        lab.spec(ref="b", delay_tolerance=600, depends_on=["a"]),
        lab.spec(ref="c", delay_tolerance=5, depends_on=["b"], run_at=at),
    ]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    assert [(await lab.live(task))["start_by"] for task in ids] == [at + seconds(5)] * 3
    await finish(lab, node, ids[0])
    assert (await lab.live(ids[1]))["start_by"] == at + seconds(5)


async def test_a_graph_that_is_already_late_starts_at_once(lab):
    node = await lab.node()
    at = lab.clock.now + seconds(60)
    specs = [
        lab.spec(ref="a", delay_tolerance=600),
        lab.spec(ref="b", delay_tolerance=600, depends_on=["a"]),
        lab.spec(ref="c", delay_tolerance=5, depends_on=["b"], run_at=at),
    ]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    await lab.clock.move(seconds(200))
    await finish(lab, await lab.rejoin(node), ids[0])
    assert (await lab.live(ids[1]))["start_by"] == lab.clock.now
