"""The audit's procedure: who audits, when a finding is drift, and what is left alone."""

import logging
from datetime import timedelta

import pytest

from duly import telemetry
from duly.config import AuditSettings, Settings
from duly.errors import NotLeading
from duly.model.drift import DriftKind, Finding
from duly.model.task import Outcome
from tests.server.lab import seconds
from tests.server.watch import MINUTE


@pytest.fixture
def settings():
    """Both scopes are gone through as often, in pieces that are small."""
    return Settings(audit=AuditSettings(history_interval=seconds(15), batch=3))


async def test_an_empty_system_is_clean(lab, watch):
    assert await watch.found() == {}
    assert await watch.total() == 0


async def test_a_system_in_use_is_clean(lab, watch):
    node = await watch.node()
    for key in range(4):
        await lab.submit(idempotency_key=str(key))
    await lab.submit(cpu=64)
    await lab.submit(run_at=lab.clock.now + timedelta(days=1))
    assert await node.report(await lab.run(node))
    assert await node.report(await lab.run(node, max_attempts=1), Outcome.FAILED)
    retried = await lab.run(node)
    await node.report(retried, Outcome.FAILED)
    cancelled = await lab.submit(cpu=64)
    await lab.components.canceller.cancel(lab.client, [cancelled])
    lost = await lab.run(node, cpu=0.1)
    watch.nodes[0] = await lab.rejoin(node)
    await lab.sweep()
    assert (await lab.live(lost.task))["losses"] == 1
    assert await watch.found() == {}
    assert await watch.total() == 0


async def test_only_the_leader_audits(lab, watch):
    other = lab.server()
    await other.cluster_manager.tick()
    for _ in range(5):
        assert await other.auditor.tick() is False
        await lab.clock.move(seconds(1))
    assert await watch.completed() == {}
    await watch.go_round()
    assert (await watch.completed()).keys() == {"live", "history"}


async def test_a_leader_whose_term_is_over_repairs_and_publishes_nothing(lab, watch):
    task = await lab.submit()
    await lab.conn.execute("delete from live")
    await watch.wait(MINUTE * 0.8)
    before = await watch.completed()
    await lab.clock.move(MINUTE)
    await lab.components.cluster_manager.tick()
    # It has just looked at its watch when it is stopped; meanwhile another takes over.
    await lab.conn.execute("update terms set term = term + 1")
    repairer, term = lab.components.auditor._repairer, lab.components.cluster_manager.term
    with pytest.raises(NotLeading):
        await repairer.repair(term, [Finding(DriftKind.LOST_TASK, task)])
    with pytest.raises(NotLeading):
        for _ in range(20):
            await lab.components.auditor.tick()
            await lab.clock.move(seconds(0.2))
    assert await lab.status(task) is None
    assert await watch.completed() == before


async def test_a_new_leader_starts_without_suspicions(lab, watch):
    other = lab.server()
    await other.cluster_manager.tick()
    task = await lab.submit()
    await lab.conn.execute("delete from live")
    await watch.wait(MINUTE * 0.8)
    await lab.components.cluster_manager.stop()
    await other.cluster_manager.tick()
    assert other.cluster_manager.term is not None
    await watch.go_round(other)
    await watch.go_round(other)
    assert await lab.status(task) is None
    await watch.wait(components=other)
    assert await lab.status(task) == "waiting"


async def test_an_agent_that_was_cut_off_has_time_to_notice_whatever_the_setting(lab, watch):
    hasty = AuditSettings(interval=seconds(1), history_interval=seconds(1), after=seconds(0))
    other = lab.server(Settings(audit=hasty))
    ref = await lab.run(await lab.node())
    await lab.conn.execute("update live set incarnation_id = 4711")
    await lab.components.cluster_manager.stop()
    ttl = lab.settings.leases.ttl
    await watch.wait(ttl * 1.8, components=other)
    assert await lab.status(ref.task) == "running"
    await watch.wait(ttl, components=other)
    assert await lab.status(ref.task) == "waiting"


async def test_drift_that_has_resolved_itself_is_left_alone(lab, watch):
    node = await watch.node()
    ref = await lab.run(node)
    await lab.rejoin(node)
    watch.nodes.clear()
    await watch.wait(MINUTE * 0.8)
    await lab.sweep()
    await watch.wait()
    assert await lab.attempts(ref.task) == [(1, "lost")]
    assert await watch.repaired(ref.task) == []
    assert await watch.total() == 0


async def snapshot(lab):
    """Return every row that a repair might touch."""
    tables = ("live", "ends", "attempts", "dead_letters", "events", "incarnations", "servers")
    return {name: await lab.conn.fetch(f"select * from {name} order by 1, 2") for name in tables}


async def test_a_repair_checks_again_and_leaves_sound_rows_alone(lab, watch):
    node = await watch.node()
    running, done = await lab.run(node), await lab.run(node)
    dead = await lab.run(node, max_attempts=1)
    await node.report(done)
    await node.report(dead, Outcome.FAILED)
    tasks = [await lab.submit(cpu=64), await lab.submit(run_at=lab.clock.now + MINUTE)]
    before = await snapshot(lab)
    token = await lab.conn.fetchval("select last_value from tokens")
    sound = [
        Finding(kind, about, str(running.token))
        for kind in DriftKind
        for about in (running.task, done.task, dead.task, *tasks, node.id)
    ]
    repairer = lab.components.auditor._repairer
    for one in sound:
        assert await repairer.repair(lab.components.cluster_manager.term, [one]) == []
    assert await snapshot(lab) == before
    assert await lab.conn.fetchval("select last_value from tokens") == token


async def test_drift_is_logged_once_and_repairs_are_counted(lab, watch, caplog):
    caplog.set_level(logging.WARNING, "duly.server")
    counter = telemetry.REPAIRS.labels(DriftKind.LOST_TASK.value)
    before = counter._value.get()
    lost = await lab.submit(cpu=64)
    await lab.conn.execute("delete from live")
    gone = await lab.submit(cpu=64)
    await lab.conn.execute("delete from tasks where id = $1", gone)
    await watch.wait(MINUTE * 3)
    said = [record.getMessage() for record in caplog.records if record.name.endswith("auditor")]
    assert len([line for line in said if f"live_without_task, such as [{gone}]" in line]) == 1
    assert counter._value.get() == before + 1
    assert any(f"repaired lost_task of {lost}" in record.getMessage() for record in caplog.records)


async def test_a_pass_covers_all_live_tasks_in_pages(lab, watch):
    tasks = [await lab.submit(cpu=64) for _ in range(10)]
    await watch.go_round()
    rows = await lab.conn.fetch("select scope, looked_at from audits")
    looked_at = {row["scope"]: row["looked_at"] for row in rows}
    # One line, ten live rows; ten tasks of history.
    assert looked_at == {"live": 1 + len(tasks), "history": len(tasks)}
