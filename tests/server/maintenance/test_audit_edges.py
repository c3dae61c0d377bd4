"""Wrong counts of open upstreams, made by hand, are found and corrected."""

import pytest

from duly.model.queues.pause import PauseCause
from duly.model.task import Outcome
from duly.store.maintenance import repairs
from duly.store.tasks import graph_operations
from tests.server.lab import reason_of, seconds
from tests.server.lifecycle.test_dependencies import after, statuses, submit_batch

BLOCKED_BY = "update live set blocked_by = $2 where id = $1"


async def test_a_blocked_task_without_open_upstreams_is_released(lab, watch):
    node = await watch.node()
    first = await lab.submit()
    second = await lab.submit(depends_on=[str(first)], delay_tolerance=600)
    ref = await lab.start(node, first)
    await lab.conn.execute("update live set has_dependants = false where id = $1", first)
    assert await node.report(ref)
    await lab.sweep()
    assert await lab.status(second) == "blocked"
    assert await watch.found() == {}
    row = await lab.live(second)
    assert (row["status"], row["blocked_by"]) == ("waiting", 0)
    assert (row["start_by"] - row["ready_at"]).total_seconds() > 599
    assert await watch.repaired(second) == ["miscounted"]


async def test_a_task_that_missed_the_failure_of_its_upstream_is_cancelled(lab, watch):
    node = await watch.node()
    first = await lab.submit(max_attempts=1)
    second = await lab.submit(depends_on=[after(first)])
    third = await lab.submit(depends_on=[after(second, "always")])
    ref = await lab.start(node, first)
    await lab.conn.execute("update live set has_dependants = false where id = $1", first)
    assert await node.report(ref, Outcome.FAILED)
    assert await watch.found() == {}
    assert reason_of(await lab.end(second))["code"] == "upstream_failed"
    await lab.sweep()
    assert await lab.status(third) == "waiting"


@pytest.mark.parametrize("count", [1, 3])
async def test_a_wrong_count_of_open_upstreams_is_corrected(lab, watch, count):
    ids = await submit_batch(lab, ("a",), ("b",), ("c", "a", "b"))
    await lab.conn.execute(BLOCKED_BY, ids["c"], count)
    assert await watch.found() == {}
    assert (await lab.live(ids["c"]))["blocked_by"] == 2
    assert await watch.repaired(ids["c"]) == ["miscounted"]


async def test_a_task_that_could_start_too_early_is_blocked_again(lab, watch):
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await lab.conn.execute("update live set blocked_by = 0, status = 'waiting'")
    assert await watch.found() == {}
    assert await statuses(lab, ids) == {"a": "waiting", "b": "blocked"}
    assert (await lab.live(ids["b"]))["blocked_by"] == 1


async def test_a_task_whose_upstream_has_an_unknown_end_is_reported(lab, watch):
    ids = await submit_batch(lab, ("a",), ("b", "a"))
    await lab.conn.execute("delete from live where id = $1", ids["a"])
    await lab.conn.execute("delete from tasks where id = $1", ids["a"])
    assert await watch.found() == {"miscounted": {ids["b"]}}
    assert await lab.status(ids["b"]) == "blocked"


async def test_an_end_still_being_propagated_is_no_drift(lab, watch, monkeypatch):
    """Ends that are told in pieces, or not at all while nobody leads, with rounds in between."""
    monkeypatch.setattr("duly.server.lifecycle.dependency_resolver.EDGES_PER_TRANSACTION", 10)
    ids = await submit_batch(lab, ("a",), *((f"w{n}", "a") for n in range(25)))
    last = await lab.submit(depends_on=[str(one) for one in ids.values()])
    await lab.components.canceller.cancel(lab.client, [ids["a"]])
    await watch.wait()
    assert await watch.drift() == {}
    assert (await lab.live(last))["blocked_by"] == 26
    await lab.sweep()
    assert await lab.count("ended_upstreams") > 0
    await watch.wait()
    assert await watch.drift() == {}
    while await lab.components.queue_manager.tick():
        await watch.go_round()
    assert await watch.drift() == {}
    assert await watch.total() == 0
    assert await lab.status(last) == "cancelled"


async def test_a_repaired_task_continues_as_if_its_upstream_had_been_settled(lab, watch):
    node = await watch.node()
    at = lab.clock.now + seconds(86400)
    specs = [
        lab.spec(ref="a"),
        lab.spec(ref="b", depends_on=["a"], delay_tolerance=9000),
        lab.spec(ref="hasty", depends_on=["b"], delay_tolerance=3000),
        lab.spec(ref="later", depends_on=["a"], run_at=at, delay_tolerance=9000),
        lab.spec(ref="paused", depends_on=["a"]),
    ]
    first, b, _, later, paused = (
        await lab.components.submitter.submit_batch(lab.client, specs)
    ).ids
    await graph_operations.pause(lab.conn, lab.client.tenant_id, [paused], PauseCause())
    ref = await lab.start(node, first)
    await lab.conn.execute("update live set has_dependants = false where id = $1", first)
    assert await node.report(ref)
    assert await watch.found() == {}
    rows = [await lab.live(task) for task in (b, later, paused)]
    assert [row["status"] for row in rows] == ["waiting", "scheduled", "paused"]
    assert [row["blocked_by"] for row in rows] == [0, 0, 0]
    ready_at, start_by = rows[0]["ready_at"], rows[0]["start_by"]
    assert start_by == (ready_at + seconds(3000)).replace(microsecond=0)
    assert (rows[1]["ready_at"], rows[1]["start_by"]) == (at, at + seconds(9000))


async def test_upstreams_that_ended_before_the_submission_do_not_count(lab, watch):
    """Though others that wait for it are still to be told."""
    node = await watch.node()
    first, other = await lab.submit(), await lab.submit(cpu=100)
    await lab.submit(depends_on=[str(first)])
    assert await node.report(await lab.start(node, first))
    last = await lab.submit(depends_on=[str(first), str(other)])
    assert (await lab.live(last))["blocked_by"] == 1
    await lab.conn.execute(BLOCKED_BY, last, 2)
    assert await watch.found() == {}
    assert await lab.count("ended_upstreams") == 1
    assert (await lab.live(last))["blocked_by"] == 1


async def test_a_task_with_very_many_edges_is_not_judged(lab, watch):
    refs = [f"r{number}" for number in range(302)]
    ids = await submit_batch(lab, *((ref,) for ref in refs), ("last", *refs))
    assert await watch.found() == {}
    assert (await lab.live(ids["last"]))["blocked_by"] == 302


async def test_a_task_that_has_started_is_left_alone(lab):
    node = await lab.node(cpu=0.5)
    second = await lab.submit(priority=9)
    ref = await lab.start(node, second)
    first = await lab.submit()
    await lab.conn.execute(
        "insert into edges (dependant_id, upstream_id, tenant_id, condition, is_counted)"
        " values ($1, $2, $3, 'success', true)",
        *(second, first, lab.client.tenant_id),
    )
    async with lab.database.transaction() as conn:
        assert not await repairs.recount(conn, second)
    assert await node.report(ref, Outcome.EXPIRED)
    async with lab.database.transaction() as conn:
        assert not await repairs.recount(conn, second)
    assert await lab.status(second) == "waiting"
