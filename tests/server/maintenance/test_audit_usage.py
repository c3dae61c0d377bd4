"""A wrong usage ledger is found, and a correct one is left alone."""

import asyncio
from datetime import timedelta

import pytest

from duly.config import AuditSettings, Settings
from duly.server.maintenance import usage_recount
from tests.server.conftest import execute
from tests.server.lab import CLOCK, seconds

DAY = timedelta(days=1)


@pytest.fixture
def settings():
    """Both scopes are gone through as often."""
    return Settings(audit=AuditSettings(history_interval=seconds(15)))


@pytest.fixture
def emptied_dsn(dsn):
    """A database of its own, because days are dropped from it."""
    asyncio.run(execute(dsn, CLOCK))
    return dsn


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    monkeypatch.setattr(usage_recount, "ATTEMPTS_PER_PAGE", 2)


async def use(lab, node, times=1, **fields):
    """Let tasks run for a second each, and book them."""
    for _ in range(times):
        await lab.components.cluster_manager.tick()
        ref = await lab.run(node, **fields)
        await lab.clock.move(seconds(1))
        await node.heartbeat(ref)
        assert await node.report(ref, ran=1)
    await lab.components.usage_recorder.tick()


async def next_day(lab, watch):
    """Let a day pass, and nodes stay."""
    await lab.clock.move(DAY)
    await lab.components.cluster_manager.tick()
    watch.nodes = [await lab.rejoin(node) for node in watch.nodes]


async def test_a_correct_ledger_is_no_drift(lab, watch):
    await use(lab, await watch.node(), times=5)
    await use(lab, watch.nodes[0], by=lab.stranger, tier="premium")
    await next_day(lab, watch)
    await use(lab, watch.nodes[0], times=3)
    assert await watch.found() == {}


@pytest.mark.parametrize(
    "change",
    [
        "attempts = attempts + 1",
        "tasks = 0",
        "cpu_us = cpu_us + 1",
        "granted_cpu_milli_us = granted_cpu_milli_us - 1",
        "granted_memory_mb_us = granted_memory_mb_us * 2",
        "tier = 'regular'",
        "user_id = null",
    ],
)
async def test_a_falsified_ledger_is_found(lab, watch, change):
    await use(lab, await watch.node(), times=2)
    await use(lab, watch.nodes[0], by=lab.stranger)
    await lab.conn.execute(f"update usage set {change} where tenant_id = $1", lab.client.tenant_id)
    await next_day(lab, watch)
    assert await watch.found() == {"usage_mismatch": {lab.client.tenant_id}}


async def test_an_attempt_missing_from_the_ledger_is_found(lab, watch):
    await use(lab, await watch.node())
    ref = await lab.run(watch.nodes[0], by=lab.stranger)
    assert await watch.nodes[0].report(ref, ran=0)
    await lab.conn.execute(
        "update usage_watermark set booked_to = (select last_value from entries)"
    )
    await use(lab, watch.nodes[0])
    await next_day(lab, watch)
    assert await watch.found() == {"usage_mismatch": {lab.stranger.tenant_id}}


async def test_an_attempt_reported_during_the_recount_is_no_drift(lab, watch):
    node = await watch.node()
    late = await lab.run(node)
    await use(lab, node, times=5)
    await lab.clock.move(DAY)
    await node.heartbeat(late)
    await lab.components.cluster_manager.tick()
    await lab.components.auditor.tick()
    assert await node.report(late, ran=1, ended_ago=DAY.total_seconds())
    await lab.components.usage_recorder.tick()
    assert await watch.found() == {}


async def test_attempts_that_were_dropped_with_their_day_are_no_drift(lab, watch):
    task = await lab.submit(run_at=lab.clock.now + DAY * 39)
    await lab.clock.move(DAY * 39)
    await lab.sweep()
    node = await watch.node()
    ref = await lab.start(node, task)
    assert await node.report(ref, ran=1)
    await use(lab, node)
    while await lab.components.retention.tick():
        pass
    assert await lab.attempts(task) == []
    await next_day(lab, watch)
    assert await watch.found() == {}
    await lab.conn.execute("update usage set attempts = 0")
    await lab.conn.execute("update usage set last_entry = last_entry + 1")
    assert await watch.found() == {"usage_mismatch": {lab.client.tenant_id}}
