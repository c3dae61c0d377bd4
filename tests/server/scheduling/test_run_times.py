"""Run times are learned by name, and decide between equals and who may run before a hold."""

import pytest

from duly.model.task import Outcome
from duly.server.scheduling import run_times
from tests.server.lab import Lab, seconds


async def learn(lab: Lab) -> None:
    """Book the attempts that have ended, and refresh the cache."""
    await lab.components.cluster_manager.tick()
    await lab.components.usage_recorder.tick()
    await lab.components.run_times.tick()


async def teach(lab: Lab, node, name: str, ran: float, *, times: int = 1) -> None:
    """Let tasks of a name run that long."""
    for _ in range(times):
        ref = await lab.run(node, name=name)
        await lab.clock.move(seconds(ran))
        await node.heartbeat(ref)
        assert await node.report(ref, ran=ran)
    lab.components.run_times.estimate(lab.client.tenant_id, name)
    await learn(lab)


async def known(lab: Lab) -> dict[tuple[int, str], int]:
    rows = await lab.conn.fetch("select tenant_id, name, samples from run_times")
    return {(row["tenant_id"], row["name"]): row["samples"] for row in rows}


@pytest.fixture
async def node(lab):
    return await lab.node(cpu=1)


async def test_a_server_learns_from_ended_attempts_once_and_by_tenant(lab, node):
    await teach(lab, node, "encode", 2.0, times=3)
    ref = await lab.run(node, name="encode", max_attempts=1)
    await node.report(ref, Outcome.FAILED, ran=9.0)
    ref = await lab.run(node)
    await node.report(ref, ran=5.0)
    await learn(lab)
    await learn(lab)
    assert await known(lab) == {(lab.client.tenant_id, "encode"): 3}
    estimate = lab.components.run_times.estimate
    assert estimate(lab.client.tenant_id, "encode").expected == seconds(2)
    assert estimate(lab.stranger.tenant_id, "encode").expected is None


async def test_a_submitted_task_carries_what_is_known_about_its_name(lab, node):
    await teach(lab, node, "encode", 4.0, times=20)
    task = await lab.live(await lab.submit(name="encode", cpu=64))
    assert (task["expected_run_time"], task["run_time_bound"]) == (seconds(4), seconds(4))
    other = await lab.live(await lab.submit(name="other", cpu=64))
    assert (other["expected_run_time"], other["run_time_bound"]) == (None, None)
    batch = await lab.components.submitter.submit_batch(
        lab.client, [lab.spec(name="encode", cpu=64)]
    )
    assert (await lab.live(batch.ids[0]))["expected_run_time"] == seconds(4)
    await lab.components.updater.update(lab.client, other["id"], {"name": "encode"})
    assert (await lab.live(other["id"]))["expected_run_time"] == seconds(4)


@pytest.mark.parametrize("is_cached", [True, False])
async def test_of_tasks_due_in_the_same_second_the_one_expected_to_be_shorter_starts_first(
    lab, node, is_cached
):
    await teach(lab, node, "slow", 9.0)
    await teach(lab, node, "quick", 1.0)
    await lab.run(node, cpu=1)
    unknown = await lab.submit(cpu=1, execution_cap="5s")
    slow = await lab.submit(cpu=1, name="slow", execution_cap="10s")
    quick = await lab.submit(cpu=1, name="quick", execution_cap="1h")
    if not is_cached:
        lab.components.resource_manager._prioritizer.request_recount()
    started = []
    for _ in range(3):
        (running,) = await lab.conn.fetch("select id, attempt, token from live where token > 0")
        await lab.conn.execute("delete from live where id = $1", running["id"])
        lab.components.resource_manager.nudge()
        await lab.schedule()
        started += [ref.task for ref in await node.starts()]
    assert started == [quick, unknown, slow]


async def test_a_task_that_very_likely_ends_in_time_runs_before_a_hold_whatever_its_cap(lab):
    node = await lab.node(cpu=4)
    await teach(lab, node, "brief", 1.0, times=20)
    await lab.run(node, cpu=3, execution_cap="10m")
    large = await lab.submit(cpu=4, delay_tolerance="20s")
    for _ in range(3):
        await lab.clock.move(seconds(4))
        await lab.sweep()
        await node.heartbeat()
    unknown = await lab.submit(cpu=1, execution_cap="1h", delay_tolerance="1m")
    brief = await lab.submit(cpu=0.5, execution_cap="1h", delay_tolerance="2m", name="brief")
    while await lab.components.resource_manager.tick():
        pass
    assert await lab.status(brief) == "running"
    assert await lab.status(unknown) == await lab.status(large) == "waiting"


async def test_a_tenant_keeps_the_names_that_were_updated_last(lab, node, monkeypatch):
    monkeypatch.setattr(run_times, "MAX_NAMES_PER_TENANT", 2)
    for name in ("a", "b", "a", "c"):
        await lab.clock.move(seconds(1))
        await teach(lab, node, name, 1.0)
    tenant = lab.client.tenant_id
    assert await known(lab) == {(tenant, "a"): 2, (tenant, "c"): 1}


async def test_a_cache_is_bounded_and_forgets_what_was_not_used(lab, node, monkeypatch):
    monkeypatch.setattr(run_times, "MAX_CACHED_NAMES", 1)
    await teach(lab, node, "a", 1.0)
    await teach(lab, node, "b", 1.0)
    estimate = lab.components.run_times.estimate
    assert estimate(lab.client.tenant_id, "a").expected is None
    assert estimate(lab.client.tenant_id, "b").expected == seconds(1)


async def test_a_removed_tenant_leaves_no_run_times(lab, node):
    await teach(lab, node, "a", 1.0)
    await lab.conn.execute("update run_times set tenant_id = $1", lab.stranger.tenant_id)
    await lab.components.tenants.remove(lab.client, lab.stranger.tenant_id)
    assert await known(lab) == {}
