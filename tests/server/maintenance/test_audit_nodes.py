"""Impossible states of subqueues, nodes and servers, made by hand."""

import pytest

from duly.config import AuditSettings, Settings
from duly.model.task import Outcome
from duly.store.fleet.servers import Term
from tests.server.lab import seconds
from tests.server.lifecycle.test_marking import mark


@pytest.fixture
def settings():
    """Both scopes are gone through as often."""
    return Settings(audit=AuditSettings(history_interval=seconds(15)))


async def test_a_stuck_subqueue_is_reported(lab, watch):
    await watch.node()
    task = await lab.submit(delay_tolerance="1s")
    too_big = await lab.submit(delay_tolerance="1s", cpu=64)
    in_time = await lab.submit(delay_tolerance="1h", cpu=2)
    await watch.wait()
    assert await watch.drift() == {}
    assert await watch.found() == {"stuck_subqueue": {task}}
    assert too_big and in_time
    await lab.schedule()
    assert await watch.found() == {}


async def test_a_subqueue_that_may_not_start_is_not_reported(lab, watch):
    await watch.node()
    await lab.conn.execute("update tenants set suspended_at = duly.now() where name = 'acme'")
    await lab.submit(by=lab.stranger, delay_tolerance="1s")
    key = {"key": "one", "limit": 1}
    await lab.submit(delay_tolerance="1s", concurrency=key)
    await lab.schedule()
    await lab.schedule()
    await lab.submit(delay_tolerance="1s", concurrency=key)
    await watch.wait()
    assert await watch.found() == {}


async def test_an_overcommitted_node_is_reported(lab, watch):
    node = await watch.node(cpu=1)
    await lab.run(node, cpu=1)
    await lab.conn.execute("update incarnations set capacity = '{\"cpu_milli\": 500}'")
    assert (await watch.found()).keys() == {"oversubscribed"}


async def test_a_marked_attempt_that_its_node_does_not_end_is_reported(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    await mark(lab, ref.task)
    assert await watch.drift() == {}
    await watch.wait()
    assert await watch.found() == {"not_stopped": {ref.task}}
    await node.report(ref, Outcome.CANCELLED)
    assert await watch.found() == {}


async def test_reservations_count_as_committed(lab, watch):
    node = await watch.node(cpu=2)
    await lab.run(node, cpu=1)
    await lab.conn.execute(
        "insert into reservations select 1, 1, $1, '{\"cpu_milli\": 1500}', at from clock", node.id
    )
    assert await watch.found() == {"oversubscribed": {node.id}}


async def test_too_much_after_an_override_says_so_and_goes_with_the_tasks(lab, watch):
    node = await watch.node(cpu=2)
    ref = await lab.run(node, cpu=2)
    await lab.components.cluster_manager.override_capacity(node.id, {"cpu_milli": 1000})
    assert await watch.found() == {"above_override": {node.id}}
    await node.report(ref)
    assert await watch.found() == {}


async def test_the_agent_of_a_removed_node_is_ended(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    await lab.conn.execute("update nodes set removed_at = duly.now()")
    watch.nodes.clear()
    assert await watch.found() == {}
    row = await lab.conn.fetchrow("select ended_at, end_reason from incarnations")
    assert row["ended_at"] is not None
    assert row["end_reason"] == "removed"
    await lab.sweep()
    assert await lab.attempts(ref.task) == [(1, "lost")]


async def test_of_two_agents_of_one_node_the_newest_stays(lab, watch):
    node = await watch.node()
    again = await lab.rejoin(node)
    watch.nodes[0] = again
    index = await lab.conn.fetchval(
        "select pg_get_indexdef('incarnations_one_live_per_node'::regclass)"
    )
    await lab.conn.execute("drop index incarnations_one_live_per_node")
    try:
        await lab.conn.execute("update incarnations set ended_at = null, expires_at = 'infinity'")
        await lab.conn.execute(
            "update incarnations set expires_at = at + interval '15 s' from clock where id = $1",
            again.incarnation,
        )
        assert await watch.found() == {}
        alive = await lab.conn.fetch("select id from incarnations where ended_at is null")
        assert [row["id"] for row in alive] == [again.incarnation]
    finally:
        await lab.conn.execute("delete from incarnations")
        await lab.conn.execute(index)


async def test_a_lease_that_ran_out_long_ago_is_reported(lab, watch):
    node = await lab.node()
    await watch.wait()
    assert await watch.drift() == {}
    assert await watch.found() == {"not_expired": {node.id}}


async def test_a_leader_that_is_no_server_is_reported(lab, watch):
    await lab.conn.execute("update terms set server = 99")
    lab.components.cluster_manager._term = Term(1, 99)
    assert await watch.found() == {"unknown_leader": {99}}
