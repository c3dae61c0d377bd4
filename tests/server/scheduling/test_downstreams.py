"""Downstreams are called within their limits, in the leader's rounds."""

import asyncio

import pytest

from duly import wire
from duly.model.requests.downstream_request import DownstreamRequest
from duly.model.task import Outcome
from tests.server.lab import FAILURE, seconds

STRIPE = {"uses": ["stripe"]}


async def put(lab, by=None, key="stripe", **limits):
    await lab.components.downstreams.put(by or lab.client, key, DownstreamRequest(**limits))


async def settle(lab):
    await lab.components.cluster_manager.tick()
    while await lab.components.resource_manager.tick():
        pass


async def submit_many(lab, count, by=None, **fields):
    specs = [lab.spec(**{**STRIPE, **fields}) for _ in range(count)]
    return [answer.id for answer in await lab.submit_all(specs, by=by)]


async def factor(lab):
    return await lab.conn.fetchval("select factor from downstreams")


async def running_by_tenant(lab):
    rows = await lab.conn.fetch(
        "select t.name, count(*) from live l join tenants t on t.id = l.tenant_id "
        "where l.status = 'running' group by 1"
    )
    return dict(rows)


async def test_no_more_run_at_once_than_the_concurrency_and_others_are_not_held_up(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=2)
    tasks = await submit_many(lab, 5)
    other = await lab.submit()
    await settle(lab)
    assert await lab.run_on(node) == {*tasks[:2], other}
    await node.report((await node.starts())[0])
    await settle(lab)
    assert await lab.run_on(node) == {*tasks[1:3], other}


async def test_a_key_without_limits_limits_nothing(lab):
    node = await lab.node(cpu=64)
    tasks = await submit_many(lab, 5)
    await settle(lab)
    assert await lab.run_on(node) == set(tasks)


async def test_a_limit_set_while_tasks_run_applies_from_the_next_round_and_removing_it_ends_it(lab):
    node = await lab.node(cpu=64)
    first = await submit_many(lab, 3)
    await settle(lab)
    await put(lab, concurrency=3)
    second = await submit_many(lab, 2)
    await settle(lab)
    assert await lab.run_on(node) == set(first)
    await lab.components.downstreams.remove(lab.client, "stripe", everyone=False)
    await settle(lab)
    assert await lab.run_on(node) == {*first, *second}


async def test_tasks_start_at_the_rate_and_the_leader_wakes_for_the_next_token(lab):
    node = await lab.node(cpu=64)
    await put(lab, rate="5/s")
    tasks = await submit_many(lab, 10)
    await settle(lab)
    assert await lab.run_on(node) == set()
    manager = lab.components.resource_manager
    for number in range(1, 6):
        assert manager.pause() == pytest.approx(seconds(0.2), abs=seconds(0.001))
        await lab.clock.move(manager.pause() + seconds(0.001))
        await settle(lab)
        assert await lab.run_on(node) == set(tasks[:number])


async def test_a_new_leader_does_not_burst(lab):
    node = await lab.node(cpu=64)
    await put(lab, rate="100/s")
    await submit_many(lab, 30)
    await settle(lab)
    other = lab.server()
    for components in (other, lab.components):
        await lab.conn.execute("update terms set expires_at = duly.now()")
        await components.cluster_manager.tick()
        await components.cluster_manager.tick()
        assert components.cluster_manager.term is not None
        await lab.clock.move(seconds(1))
    await settle(lab)
    assert await lab.run_on(node) == set()
    await lab.clock.move(seconds(0.101))
    await settle(lab)
    assert len(await lab.run_on(node)) == 10


async def test_a_leader_without_tasks_that_use_downstreams_does_not_wake_early(lab):
    await lab.node(cpu=64)
    await put(lab, rate="5/s")
    await lab.submit()
    await settle(lab)
    assert lab.components.resource_manager.pause() == lab.settings.scheduling.interval


async def test_exit_code_75_halves_pauses_and_is_no_failure(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=4)
    tasks = await submit_many(lab, 8)
    await settle(lab)
    refs = await node.starts()
    for ref in refs[:2]:
        told = [wire.Throttled("stripe", 2.0)]
        await node.report(ref, Outcome.FAILED, exit_code=75, reason=FAILURE, throttled=told)
    assert await factor(lab) == 0.5
    row = await lab.conn.fetchrow("select * from live where id = $1", refs[0].task)
    assert (row["status"], row["failures"]) == ("scheduled", 0)
    assert seconds(2) <= row["ready_at"] - lab.clock.now <= seconds(2.2)
    assert "Throttled by stripe (exit code 75)." in str(row["reason"])
    for ref in refs[2:]:
        await node.report(ref)
    await settle(lab)
    assert await lab.run_on(node) == set()
    manager = lab.components.resource_manager
    assert manager.pause() <= lab.settings.scheduling.interval
    await lab.clock.move(seconds(2.001))
    await node.heartbeat()
    await settle(lab)
    running = await lab.run_on(node)
    assert len(running) == 2 and running <= set(tasks)


async def test_exit_code_75_without_uses_is_an_ordinary_failure(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=4)
    task = await lab.submit(max_attempts=1)
    await settle(lab)
    await node.report((await node.starts())[0], Outcome.FAILED, exit_code=75)
    ended = await lab.conn.fetchrow("select status, failures from ends where task_id = $1", task)
    assert tuple(ended) == ("failed", 1)
    assert await factor(lab) == 1


async def test_throttling_that_a_running_attempt_reports_halves_once(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=8)
    await put(lab, key="other", concurrency=8)
    await submit_many(lab, 8)
    await settle(lab)
    refs = await node.starts()
    throttling = lab.components.queue_manager.throttling
    calls = [wire.ThrottledAttempt(ref, wire.Throttled("stripe", 0.0)) for ref in refs]
    unused = wire.ThrottledAttempt(refs[0], wire.Throttled("other", 0.0))
    stale = wire.ThrottledAttempt(wire.AttemptRef(1, 1, 1), wire.Throttled("stripe", 0.0))
    await throttling.record_running(node.id, [*calls, unused, stale])
    for call in calls:
        await throttling.record_running(node.id, [call])
    rows = await lab.conn.fetch("select key, factor from downstreams")
    assert dict(rows) == {"stripe": 0.5, "other": 1.0}


async def test_another_tenants_own_limits_do_not_change(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=8)
    await put(lab, by=lab.stranger, concurrency=8)
    await submit_many(lab, 1)
    await settle(lab)
    ref = (await node.starts())[0]
    call = wire.ThrottledAttempt(ref, wire.Throttled("stripe", 0.0))
    await lab.components.queue_manager.throttling.record_running(node.id, [call])
    rows = await lab.conn.fetch(
        "select t.name, d.factor from downstreams d join tenants t on t.id = d.tenant_id"
    )
    assert dict(rows) == {"default": 0.5, "acme": 1.0}


async def test_successes_raise_a_lowered_limit_and_survive_a_new_leader(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=4)
    await submit_many(lab, 40)
    await settle(lab)
    refs = await node.starts()
    call = wire.ThrottledAttempt(refs[0], wire.Throttled("stripe", 0.0))
    await lab.components.queue_manager.throttling.record_running(node.id, [call])
    await settle(lab)
    assert await factor(lab) == 0.5
    for number in range(1, 4):
        await node.report(refs.pop())
        await lab.clock.move(seconds(1.5))
        await node.heartbeat()
        await settle(lab)
        assert await factor(lab) == pytest.approx(0.5 + number * 1.5 / 60)
        refs += await node.starts(*refs)
    await lab.clock.move(seconds(1.5))
    await settle(lab)
    assert await factor(lab) == pytest.approx(0.5 + 4.5 / 60)


async def test_tenants_share_what_the_administrator_has_set(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=10, everyone=True)
    await submit_many(lab, 30, delay_tolerance="1s")
    await submit_many(lab, 30, by=lab.stranger)
    await settle(lab)
    assert await running_by_tenant(lab) == {"default": 5, "acme": 5}
    assert len(await lab.run_on(node)) == 10


async def test_a_tenant_takes_what_the_other_does_not_want(lab):
    await lab.node(cpu=64)
    await put(lab, concurrency=10, everyone=True)
    await submit_many(lab, 30)
    await submit_many(lab, 2, by=lab.stranger)
    await settle(lab)
    assert await running_by_tenant(lab) == {"default": 8, "acme": 2}


async def test_a_tenant_whose_tasks_cannot_start_keeps_nothing_from_others(lab):
    await lab.node(cpu=64)
    await put(lab, concurrency=10, everyone=True)
    await put(lab, by=lab.stranger, concurrency=1)
    await submit_many(lab, 30)
    await submit_many(lab, 30, by=lab.stranger)
    await submit_many(lab, 5, by=lab.stranger, cpu=1000)
    await settle(lab)
    assert await running_by_tenant(lab) == {"default": 9, "acme": 1}


async def test_tokens_of_a_shared_rate_are_divided_one_by_one(lab):
    await lab.node(cpu=64)
    await put(lab, rate="5/s", everyone=True)
    await submit_many(lab, 20, delay_tolerance="1s")
    await submit_many(lab, 20, by=lab.stranger)
    await settle(lab)
    for _ in range(20):
        await lab.clock.move(seconds(0.201))
        await settle(lab)
    assert await running_by_tenant(lab) == {"default": 10, "acme": 10}


async def test_both_definitions_of_a_key_apply(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=5, everyone=True)
    await put(lab, concurrency=2)
    await submit_many(lab, 9)
    await settle(lab)
    assert len(await lab.run_on(node)) == 2
    await put(lab, concurrency=50)
    await settle(lab)
    assert len(await lab.run_on(node)) == 5


async def test_a_task_with_two_keys_needs_room_under_both(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=3)
    await put(lab, key="s3", concurrency=1)
    both = await submit_many(lab, 3, uses=["s3", "stripe"], delay_tolerance="1s")
    one = await submit_many(lab, 3)
    await settle(lab)
    assert await lab.run_on(node) == {both[0], *one[:2]}


async def test_grants_that_a_waiting_tenant_cannot_use_go_to_others_and_the_leader_rests(lab):
    node = await lab.node(cpu=64)
    await put(lab, concurrency=10, everyone=True)
    await submit_many(lab, 1, by=lab.stranger)
    await settle(lab)
    await node.report((await node.starts())[0])
    await lab.submit(cpu=52)
    await settle(lab)
    await submit_many(lab, 30, by=lab.stranger, queue="off_peak", cpu=0.1)
    await submit_many(lab, 30, cpu=0.1)
    async with asyncio.timeout(20):
        await settle(lab)
    assert await running_by_tenant(lab) == {"default": 11}
