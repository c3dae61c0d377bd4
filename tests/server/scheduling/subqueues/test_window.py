"""A round considers the first tasks of all subqueues, at most one window of them."""

import asyncio
import random
from collections import Counter

import pytest

from duly.config import SchedulingSettings, Settings
from duly.model.requests.amounts import ResourcesRequest
from duly.model.task import Outcome
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from duly.store.tasks import subqueues
from tests.server.chaos import Chaos
from tests.server.lab import seconds


@pytest.fixture
def settings():
    """A small window. Tasks keep their queue when they fail, so that rank alone orders them."""
    return Settings(scheduling=SchedulingSettings(window=3, promote_retries=False))


async def test_a_round_leases_at_most_one_window_and_asks_for_another_round(lab):
    node = await lab.node(cpu=64)
    await lab.submit_all([lab.spec() for _ in range(5)])
    assert await lab.components.resource_manager.tick() is True
    assert len(await lab.run_on(node)) == 3
    assert await lab.components.resource_manager.tick() is False
    assert len(await lab.run_on(node)) == 5


async def test_tasks_that_fit_nowhere_do_not_fill_the_window(lab):
    node = await lab.node(cpu=1)
    await lab.submit_all([lab.spec(cpu=4, delay_tolerance="1s") for _ in range(9)])
    small = await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {small}


async def test_a_flood_of_one_tenant_does_not_hide_another_tenant(lab):
    node = await lab.node(cpu=64)
    await lab.submit_all([lab.spec() for _ in range(20)])
    theirs = await lab.submit(by=lab.stranger, delay_tolerance="1s")
    await lab.schedule()
    assert theirs in await lab.run_on(node)


async def crowd(lab, tenants, each):
    """Submit tasks of several tenants in one second, and return the tenant of each task."""
    owners = {}
    for number in range(tenants):
        name = f"tenant-{number}"
        await lab.conn.execute("insert into tenants (name, plan) values ($1, 'unlimited')", name)
    for _ in range(each):
        for number in range(tenants):
            by = await lab.credential(f"tenant-{number}")
            owners[await lab.submit(by=by, cpu=1)] = number
    return owners


def spread(owners, tasks):
    """Return the largest difference between the numbers of tasks of two tenants."""
    counts = Counter(owners[task] for task in tasks)
    return max(counts.values()) - min(counts[tenant] for tenant in set(owners.values()))


@pytest.mark.parametrize("with_recount", [False, True])
async def test_tenants_are_served_round_robin_with_capacity_for_one_task(lab, with_recount):
    node = await lab.node(cpu=1)
    owners = await crowd(lab, tenants=7, each=9)
    started = []
    for _ in range(56):
        if with_recount:
            lab.components.resource_manager._prioritizer.request_recount()
        await lab.schedule()
        (ref,) = await node.starts()
        started.append(ref.task)
        await node.report(ref, Outcome.SUCCEEDED)
        assert spread(owners, started) <= 1
    assert spread(owners, started) == 0


@pytest.mark.parametrize("with_recount", [False, True])
async def test_tenants_are_served_round_robin_with_capacity_for_many_tasks(lab, with_recount):
    node = await lab.node(cpu=64)
    owners = await crowd(lab, tenants=6, each=9)
    for rounds in range(1, 17):
        if with_recount:
            lab.components.resource_manager._prioritizer.request_recount()
        await lab.components.resource_manager.tick()
        started = await lab.run_on(node)
        assert len(started) == 3 * rounds
        assert spread(owners, started) <= 3


async def start_one_by_one(lab, node, count):
    """Run tasks one after the other, and return them in that order."""
    started = []
    for _ in range(count):
        await lab.schedule()
        (ref,) = await node.starts()
        started.append(ref.task)
        await node.report(ref, Outcome.SUCCEEDED)
    return started


async def test_a_tenant_starts_its_own_tasks_by_rank(lab):
    node = await lab.node(cpu=1)
    low = await crowd(lab, tenants=7, each=2)
    high = {}
    for number in range(7):
        by = await lab.credential(f"tenant-{number}")
        high[await lab.submit(by=by, cpu=1, priority=1)] = number
    started = await start_one_by_one(lab, node, 21)
    for number in range(7):
        own = [task for task in started if (low | high)[task] == number]
        assert own == sorted(own, key=lambda task: (task not in high, task))


async def fill(lab, node):
    """Schedule until nothing more fits, and return the running tasks."""
    lab.components.resource_manager._prioritizer.request_recount()
    while await lab.components.resource_manager.tick():
        pass
    return await lab.run_on(node)


@pytest.mark.parametrize("room", [3, 7])
async def test_a_tenant_starts_no_task_before_others_with_an_earlier_start_by(lab, room):
    node = await lab.node(cpu=room)
    early = await crowd(lab, tenants=7, each=1)
    for number in range(7):
        by = await lab.credential(f"tenant-{number}")
        await lab.submit_all([lab.spec(cpu=1, delay_tolerance=3600)] * 3, by=by)
    assert await fill(lab, node) <= set(early)


@pytest.mark.parametrize("pressing", [{"delay_tolerance": 10}, {"queue": "urgent"}])
async def test_pressing_tasks_fill_a_large_fleet_before_patient_ones(lab, pressing):
    node = await lab.node(cpu=24)
    patient = {"delay_tolerance": 3600}
    first = {answer.id for answer in await lab.submit_all([lab.spec(cpu=1, **pressing)] * 24)}
    for memory in range(100, 106):
        resources = ResourcesRequest(cpu=1, memory_mb=memory)
        spec = lab.spec(resources=resources, **patient)
        await lab.submit_all([spec] * 8)
    assert await fill(lab, node) == first


async def test_the_heads_of_many_subqueues_start_before_the_tasks_behind_them(lab):
    node = await lab.node(cpu=16)
    first = set()
    for memory in range(100, 116):
        resources = ResourcesRequest(cpu=1, memory_mb=memory)
        specs = [lab.spec(resources=resources, delay_tolerance=time) for time in (10, *[3600] * 4)]
        first.add((await lab.submit_all(specs))[0].id)
    assert await fill(lab, node) == first


async def test_a_tenant_near_its_limit_starts_its_pressing_tasks(lab):
    await lab.conn.execute(
        "insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,"
        " max_running) values ('two', '300 s', '24 h', '36525 d', 1, 2)"
    )
    await lab.conn.execute("update tenants set plan = 'two' where name = 'acme'")
    node = await lab.node(cpu=64)
    specs = [lab.spec(cpu=cpu, delay_tolerance=time) for cpu, time in ((1, 10), (2, 3600)) * 2]
    answers = await lab.submit_all(specs, by=lab.stranger)
    others = {
        answer.id for answer in await lab.submit_all([lab.spec(cpu=1, delay_tolerance=7200)] * 6)
    }
    assert await fill(lab, node) == {answers[0].id, answers[2].id} | others


async def test_a_round_fills_its_window_from_subqueues_that_may_start_one_task_each(lab):
    node = await lab.node(cpu=64)
    specs = [lab.spec(cpu=1, concurrency={"key": str(n % 9), "limit": 1}) for n in range(27)]
    await lab.submit_all(specs)
    lab.components.resource_manager._prioritizer.request_recount()
    counts = [len(await lab.run_on(node))]
    while await lab.components.resource_manager.tick():
        counts.append(len(await lab.run_on(node)))
    assert len(await lab.run_on(node)) == 9
    assert counts.index(9) - counts.index(3) == 2


@pytest.mark.parametrize("seed", range(6))
async def test_no_task_waits_while_capacity_is_free(lab, seed):
    dice = random.Random(seed)
    room = dice.choice((7, 12, 24))
    chaos = Chaos(lab, await lab.node(cpu=room), room, dice)
    for _ in range(40):
        await chaos.step()
        while await lab.components.resource_manager.tick():
            pass
        running, waiting = await chaos.rows("running"), await chaos.rows("waiting")
        assert not waiting or len(running) == room


async def test_every_subqueue_is_served_however_many_there_are(lab):
    node = await lab.node(cpu=64)
    await crowd(lab, tenants=10, each=2)
    ticks = 1
    while await lab.components.resource_manager.tick():
        ticks += 1
        # A recount in between must not restart the round-robin.
        lab.components.resource_manager._prioritizer.request_recount()
    assert len(await lab.run_on(node)) == 20
    assert ticks == 7


async def test_the_earliest_start_by_of_many_subqueues_comes_first(lab):
    node = await lab.node(cpu=3)
    patient = [await lab.submit(cpu=1, delay_tolerance="60s") for _ in range(3)]
    other = [await lab.submit(cpu=0.9, delay_tolerance="61s") for _ in range(3)]
    other.append(await lab.submit(cpu=0.5, delay_tolerance="62s"))
    pressing = [await lab.submit(cpu=1, delay_tolerance="9s") for _ in range(3)]
    assert await lab.components.resource_manager.tick() is True
    assert await lab.run_on(node) == set(pressing)
    assert {await lab.status(task) for task in patient + other} == {"waiting"}


async def test_a_task_with_an_earlier_start_by_than_the_window_is_placed_next(lab):
    node = await lab.node(cpu=4)
    await lab.submit_all([lab.spec(cpu=1, delay_tolerance="60s") for _ in range(6)])
    await lab.components.resource_manager.tick()
    urgent = await lab.submit(cpu=1, delay_tolerance="1s")
    await lab.components.resource_manager.tick()
    assert urgent in await lab.run_on(node)


async def test_subqueues_kept_out_by_a_hold_do_not_hide_those_that_fit_beside_it(lab):
    node = await lab.node(cpu=2)
    first = await lab.run(node, cpu=1, execution_cap="1h")
    await lab.submit(cpu=2, delay_tolerance="20s", execution_cap="1h")
    await lab.clock.move(seconds(10))
    await node.heartbeat(first)
    shut_out = [
        await lab.submit(cpu=cpu, delay_tolerance="30s", execution_cap="2h")
        for cpu in (0.6, 0.7, 0.8, 0.9)
    ]
    brief = await lab.submit(cpu=0.5, execution_cap="60s")
    await lab.components.cluster_manager.tick()
    assert await lab.components.resource_manager.tick() is True
    assert await lab.status(brief) == "waiting"
    await lab.components.resource_manager.tick()
    assert await lab.status(brief) == "running"
    assert {await lab.status(task) for task in shut_out} == {"waiting"}


async def test_a_recount_requested_during_another_one_follows_it(lab, monkeypatch):
    prioritizer = lab.components.resource_manager._prioritizer
    read_all = subqueues.read_nonempty

    async def late(conn):
        start_bys = await read_all(conn)
        prioritizer.request_recount()
        return start_bys

    monkeypatch.setattr(subqueues, "read_nonempty", late)
    async with lab.database.connection() as conn:
        await prioritizer.waiting_shapes(conn)
    assert prioritizer._recount_cycle.is_due


async def test_a_subqueue_marked_ready_during_a_recount_is_not_lost(lab):
    prioritizer = lab.components.resource_manager._prioritizer
    async with asyncio.timeout(10), lab.database.connection() as conn:
        async with lab.conn.transaction():
            await lab.conn.execute("lock table live in access exclusive mode")
            recount = asyncio.create_task(prioritizer.waiting_shapes(conn))
            while not await lab.conn.fetchval("select count(*) from pg_locks where not granted"):
                await asyncio.sleep(0)
            prioritizer.mark_ready([((1, 7), UNKNOWN_START_BY)])
        assert 7 in await recount
