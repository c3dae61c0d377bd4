"""Replays of tasks together with the downstreams that were cancelled because of them."""

import asyncio
import itertools

import pytest

from duly.errors import Conflict, Invalid, LimitExceeded, NotFound, TooLarge, Unavailable
from duly.model.task import Outcome
from duly.server.lifecycle import downstream_replay
from tests.server.lab import reason_of
from tests.server.lifecycle.test_cancelling import cancel
from tests.server.lifecycle.test_dependencies import after, finish, statuses
from tests.server.lifecycle.test_graph_operations import submit_graph


async def replay(lab, task, **options):
    return await lab.components.downstream.replay(options.pop("by", lab.client), task, **options)


async def replays(lab):
    """Return the new task of each that was replayed."""
    rows = await lab.conn.fetch("select id, replay_of from tasks where replay_of is not null")
    return {row["replay_of"]: row["id"] for row in rows}


async def edges_of(lab, task):
    rows = await lab.conn.fetch(
        "select upstream_id, condition from edges where dependant_id = $1", task
    )
    return {row["upstream_id"]: row["condition"] for row in rows}


async def fail(lab, node, task):
    await finish(lab, node, task, Outcome.FAILED)
    while await lab.components.queue_manager.tick():
        pass


async def test_downstreams_cancelled_with_a_task_are_replayed_with_it(lab):
    node = await lab.node(cpu=0.5)
    graph, ids = await submit_graph(
        lab, ("other",), ("a",), ("b", "a", "other"), ("c", "b"), ("d", "b", "c"), max_attempts=1
    )
    await finish(lab, node, ids["other"])
    await fail(lab, node, ids["a"])
    assert await statuses(lab, ids) == {
        "other": "done",
        "a": "failed",
        "b": "cancelled",
        "c": "cancelled",
        "d": "cancelled",
    }
    new = await replay(lab, ids["a"])
    made = await replays(lab)
    assert made.keys() == {ids[ref] for ref in "abcd"}
    a, b, c, d = (made[ids[ref]] for ref in "abcd")
    assert new == a
    assert [await lab.status(task) for task in (a, b, c, d)] == ["waiting", *["blocked"] * 3]
    assert await edges_of(lab, b) == {a: "success", ids["other"]: "success"}
    assert await edges_of(lab, d) == {b: "success", c: "success"}
    assert (await lab.live(b))["blocked_by"] == 1
    by_ref = "select upstream_id from edges where dependant_id = $1 and by_ref"
    rows = await lab.conn.fetch(by_ref, b)
    assert {row["upstream_id"] for row in rows} == {a, ids["other"]}
    rows = await lab.conn.fetch("select ref, graph_id from tasks where id = any($1)", [a, b, c, d])
    assert {row["ref"] for row in rows} == set("abcd")
    (whole,) = {row["graph_id"] for row in rows} - {graph}
    stored = await lab.conn.fetchrow("select * from graphs where id = $1", whole)
    assert (stored["name"], sorted(stored["task_ids"])) == ("g", sorted([a, b, c, d]))
    for task in (a, b, c, d):
        await finish(lab, node, task)
    assert [await lab.status(task) for task in (a, b, c, d)] == ["done"] * 4
    assert await lab.count("dead_letters") == 0
    events = await lab.conn.fetch("select task_id from events where kind = 'replayed'")
    assert {row["task_id"] for row in events} == made.keys()


async def test_downstreams_not_cancelled_because_of_the_task_are_left_alone(lab):
    node = await lab.node(cpu=0.5)
    first = await lab.submit(max_attempts=1)
    sorry = await lab.submit(depends_on=[after(first, "failure")])
    always = await lab.submit(depends_on=[after(first, "always")])
    by_hand = await lab.submit(depends_on=[str(first)])
    await cancel(lab, by_hand)
    await fail(lab, node, first)
    await finish(lab, node, sorry)
    await finish(lab, node, always)
    new = await replay(lab, first)
    assert await replays(lab) == {first: new}
    assert await lab.count("graphs") == 0


async def test_a_live_upstream_is_waited_for(lab):
    node = await lab.node(cpu=0.5)
    first, other = await lab.submit(max_attempts=1), await lab.submit()
    last = await lab.submit(depends_on=[str(first), str(other)])
    await fail(lab, node, first)
    new = await replay(lab, first)
    again = (await replays(lab))[last]
    await finish(lab, node, new)
    assert await lab.status(again) == "blocked"
    await finish(lab, node, other)
    assert await lab.status(again) == "waiting"


async def test_another_failed_upstream_cancels_the_replay_unless_it_was_replayed(lab):
    node = await lab.node(cpu=0.5)
    first, second = await lab.submit(max_attempts=1), await lab.submit(max_attempts=1)
    last = await lab.submit(depends_on=[str(first), str(second)])
    await fail(lab, node, first)
    await fail(lab, node, second)
    await replay(lab, first)
    vain = (await replays(lab))[last]
    assert reason_of(await lab.end(vain))["details"]["upstream"] == str(second)
    other = await replay(lab, second)
    assert (await replays(lab)).keys() == {first, last, second, vain}
    again = (await replays(lab))[vain]
    newest = (await replays(lab))[first]
    assert await edges_of(lab, again) == {newest: "success", other: "success"}
    assert await lab.status(again) == "blocked"


async def test_a_task_with_two_failed_upstreams_is_replayed_once_and_waits_for_both(lab):
    node = await lab.node(cpu=0.5)
    first, second = await lab.submit(max_attempts=1), await lab.submit(max_attempts=1)
    last = await lab.submit(depends_on=[str(first), str(second)])
    await fail(lab, node, first)
    await fail(lab, node, second)
    other = await replay(lab, second)
    assert await replays(lab) == {second: other}
    new = await replay(lab, first)
    again = (await replays(lab))[last]
    assert await edges_of(lab, again) == {new: "success", other: "success"}
    assert await lab.status(again) == "blocked"


async def test_the_last_replay_of_an_upstream_is_waited_for(lab):
    node = await lab.node(cpu=0.5)
    _, ids = await submit_graph(lab, ("x",), ("y",), ("z", "x", "y"), max_attempts=1)
    await fail(lab, node, ids["x"])
    await fail(lab, node, ids["y"])
    await fail(lab, node, await replay(lab, ids["y"]))
    second = await replay(lab, ids["y"])
    await fail(lab, node, second)
    third = await replay(lab, second)
    # It was cancelled because of x, so it is not replayed with y.
    assert (await replays(lab)).keys() == {ids["y"], second}
    new = await replay(lab, ids["x"])
    last = (await replays(lab))[ids["z"]]
    assert await edges_of(lab, last) == {new: "success", third: "success"}
    assert await lab.conn.fetchval(
        "select bool_and(by_ref) from edges where dependant_id = $1", last
    )


@pytest.mark.parametrize(
    ("of_the_last", "expected"),
    [("success", "success"), ("always", "success"), ("failure", None)],
)
async def test_two_conditions_on_one_replay_are_combined(lab, of_the_last, expected):
    node = await lab.node(cpu=0.5)
    first, other = await lab.submit(max_attempts=1), await lab.submit(max_attempts=1)
    await fail(lab, node, first)
    await fail(lab, node, other)
    latest = await replay(lab, other)
    needs = [str(first), after(latest, of_the_last), str(other)]
    last = await lab.submit(depends_on=needs)
    assert reason_of(await lab.end(last))["details"]["upstream"] == str(first)
    new = await replay(lab, first)
    again = (await replays(lab))[last]
    if expected is not None:
        assert await edges_of(lab, again) == {new: "success", latest: expected}
        return
    # Nothing succeeds and fails: it ends at once, and says because of whom.
    assert await edges_of(lab, again) == {
        new: "success",
        latest: "failure",
        other: "success",
    }
    assert reason_of(await lab.end(again))["details"]["upstream"] == str(other)


async def test_a_fulfilled_upstream_counts_even_if_it_was_replayed(lab):
    node = await lab.node(cpu=0.5)
    first, other = await lab.submit(max_attempts=1), await lab.submit(max_attempts=1)
    glad = await lab.submit(depends_on=[str(first), str(other)])
    sorry = await lab.submit(depends_on=[str(first), after(other, "failure")])
    await fail(lab, node, first)
    await fail(lab, node, other)
    latest = await replay(lab, other)
    new = await replay(lab, first)
    made = await replays(lab)
    assert await edges_of(lab, made[glad]) == {new: "success", latest: "success"}
    assert await edges_of(lab, made[sorry]) == {new: "success", other: "failure"}
    await finish(lab, node, new)
    assert await lab.status(made[sorry]) == "waiting"


async def test_a_cancelled_downstream_can_be_replayed_alone_whatever_it_waited_for(lab):
    node = await lab.node(cpu=0.5)
    done, first = await lab.submit(), await lab.submit(max_attempts=1)
    second = await lab.submit(depends_on=[str(first), str(done)])
    third = await lab.submit(depends_on=[str(second)])
    await finish(lab, node, done)
    await fail(lab, node, first)
    new = await replay(lab, second)
    made = await replays(lab)
    assert made.keys() == {second, third}
    assert (await lab.status(new), await edges_of(lab, new)) == ("waiting", {done: "success"})
    assert await lab.status(made[third]) == "blocked"


async def test_a_replay_is_refused_until_the_end_has_been_propagated(lab):
    node = await lab.node()
    first = await lab.submit(max_attempts=1)
    await lab.submit(depends_on=[str(first)])
    ref = await lab.start(node, first)
    await node.report(ref, Outcome.FAILED)
    with pytest.raises(Unavailable, match="has not reached its downstream tasks yet"):
        await replay(lab, first)
    await lab.sweep()
    await replay(lab, first)
    assert len(await replays(lab)) == 2


async def test_a_dead_letter_is_replayed_once_with_its_downstreams(lab):
    node = await lab.node()
    first = await lab.submit(max_attempts=1)
    await lab.submit(depends_on=[str(first)])
    await fail(lab, node, first)
    asked = [replay(lab, first, dead=True) for _ in range(3)]
    got = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in got) == ["NotFound", "NotFound", "int"]
    assert len(await replays(lab)) == 2


async def test_limits_apply_to_the_whole_replay(lab, monkeypatch):
    node = await lab.node()
    ids = [await lab.submit(max_attempts=1)]
    for _ in range(3):
        ids.append(await lab.submit(depends_on=[str(ids[-1])]))
    await fail(lab, node, ids[0])
    await lab.conn.execute(
        "insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,"
        " tasks_per_hour, burst) values ('three', '5 m', '1 h', '1 h', 1, 3, 3)"
        " on conflict do nothing;"
        " update tenants set plan = 'three' where name = 'default'"
    )
    limited = await lab.credential("default")
    try:
        with pytest.raises((LimitExceeded, Invalid)):
            await replay(lab, ids[0], by=limited)
    finally:
        await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'default'")
    assert await replays(lab) == {}
    lab.components.downstream._max_tasks = 3
    with pytest.raises(TooLarge):
        await replay(lab, ids[0])
    lab.components.downstream._max_tasks = 4
    monkeypatch.setattr(downstream_replay, "TASKS_PER_READ", 2)
    await replay(lab, ids[0])
    made = await replays(lab)
    for old, after_it in itertools.pairwise(ids):
        assert await edges_of(lab, made[after_it]) == {made[old]: "success"}


async def test_an_unknown_or_live_task_is_not_replayed(lab):
    task = await lab.submit()
    with pytest.raises(Conflict):
        await replay(lab, task)
    with pytest.raises(NotFound):
        await replay(lab, task, by=lab.stranger)
