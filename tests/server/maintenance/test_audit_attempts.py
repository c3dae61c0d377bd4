"""Impossible attempts, made by hand, are found and ended, or left for a person."""

import pytest

from duly.config import AuditSettings, Settings
from tests.server.lab import seconds

BROKEN = 1 << 40
"""The id of something that does not exist."""


@pytest.fixture
def settings():
    """Both scopes are gone through as often."""
    return Settings(audit=AuditSettings(history_interval=seconds(15)))


async def test_an_orphaned_attempt_that_was_not_swept_is_ended(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    await lab.rejoin(node)
    watch.nodes.clear()
    await watch.go_round()
    assert await lab.status(ref.task) == "running"
    assert await watch.found() == {}
    assert await lab.status(ref.task) == "waiting"
    assert await lab.attempts(ref.task) == [(1, "lost")]
    assert await watch.repaired(ref.task) == ["orphaned"]
    assert await watch.total() == 1
    assert not await node.report(ref)


async def test_an_attempt_of_an_unknown_incarnation_is_ended(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    await lab.conn.execute("update live set incarnation_id = $1 where id = $2", BROKEN, ref.task)
    await lab.sweep()
    assert await lab.status(ref.task) == "running"
    assert await watch.found() == {}
    assert await lab.status(ref.task) == "waiting"
    assert await lab.attempts(ref.task) == [(1, "lost")]


async def test_an_attempt_that_cannot_be_repaired_is_reported_and_others_are_ended(lab, watch):
    node = await watch.node()
    bad, good = await lab.run(node), await lab.run(node)
    await lab.conn.execute("update live set incarnation_id = $1", BROKEN)
    await lab.conn.execute(
        "insert into attempts (task_id, attempt, tenant_id, token, node_id, incarnation_id, "
        "outcome, leased_at, finished_at) "
        "values ($1, 1, 1, 1, 1, 1, 'lost', duly.now(), duly.now())",
        bad.task,
    )
    assert await watch.found() == {"orphaned": {bad.task}, "attempt_gap": {bad.task}}
    assert await lab.status(good.task) == "waiting"


async def test_a_node_that_is_being_lost_is_no_drift(lab, watch):
    ref = await lab.run(await lab.node())
    for _ in range(150):
        await lab.clock.move(seconds(1))
        await lab.sweep()
        await lab.components.auditor.tick()
        assert await watch.drift() == {}
    assert await lab.attempts(ref.task) == [(1, "lost")]
    assert await watch.total() == 0


async def test_an_attempt_far_past_its_cap_is_reported_and_not_ended(lab, watch):
    ref = await lab.run(await watch.node(), execution_cap="10s")
    await watch.wait()
    assert await watch.drift() == {}
    assert await watch.found() == {"overrunning": {ref.task}}
    assert await lab.status(ref.task) == "running"


async def test_a_cancelled_task_that_keeps_running_is_reported(lab, watch):
    ref = await lab.run(await watch.node())
    await lab.components.canceller.cancel(lab.client, [ref.task])
    await watch.wait()
    assert await watch.drift() == {}
    assert await watch.found() == {"not_cancelled": {ref.task}}


async def test_a_gap_between_attempts_is_reported_of_live_and_of_ended_tasks(lab, watch):
    node = await watch.node()
    live, ended = await lab.run(node), await lab.run(node)
    await lab.conn.execute("update live set attempt = 2 where id = $1", live.task)
    await node.report(ended)
    await lab.conn.execute("update ends set attempt = 3 where task_id = $1", ended.task)
    assert await watch.found() == {"attempt_gap": {live.task, ended.task}}


async def test_tokens_are_brought_above_those_in_use(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    await lab.conn.execute("update live set token = token + 500 where id = $1", ref.task)
    assert await watch.found() == {}
    assert await watch.repaired(ref.task) == ["token_ahead"]
    token = (await lab.live(ref.task))["token"]
    later = await lab.run(node)
    assert later.token > token
