"""A round looks at so many tasks at most."""

import asyncio
import random
from collections import Counter

import pytest

from duly.config import SchedulingSettings, Settings
from duly.model.amounts import ResourcesRequest
from duly.model.task import Outcome
from duly.server.lines import EARLIEST
from duly.store import waiting
from tests.server.chaos import Chaos
from tests.server.lab import seconds


@pytest.fixture
def settings():
    return Settings(scheduling=SchedulingSettings(window=3))


async def test_a_round_takes_no_more_and_says_that_there_is_more(lab):
    node = await lab.node(cpu=64)
    await lab.submit_all([lab.spec() for _ in range(5)])
    assert await lab.parts.resource_manager.tick() is True
    assert len(await lab.run_on(node)) == 3
    assert await lab.parts.resource_manager.tick() is False
    assert len(await lab.run_on(node)) == 5


async def test_tasks_that_fit_nowhere_do_not_fill_it(lab):
    node = await lab.node(cpu=1)
    await lab.submit_all([lab.spec(cpu=4, delay_tolerance="1s") for _ in range(9)])
    small = await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {small}


async def test_a_flood_of_one_tenant_does_not_hide_the_other(lab):
    node = await lab.node(cpu=64)
    await lab.submit_all([lab.spec() for _ in range(20)])
    theirs = await lab.submit(by=lab.stranger, delay_tolerance="1s")
    await lab.schedule()
    assert theirs in await lab.run_on(node)


async def crowd(lab, tenants, each):
    """Let tenants submit in turns in the same second, and return who submitted what."""
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
    """Return how many more tasks of one tenant are among some than of another."""
    counts = Counter(owners[task] for task in tasks)
    return max(counts.values()) - min(counts[one] for one in set(owners.values()))


@pytest.mark.parametrize("is_counted", [False, True])
async def test_tenants_take_turns_while_there_is_room_for_one(lab, is_counted):
    node = await lab.node(cpu=1)
    owners = await crowd(lab, tenants=7, each=9)
    started = []
    for _ in range(56):
        if is_counted:
            lab.parts.resource_manager._prioritizer.recount()
        await lab.schedule()
        (ref,) = await node.starts()
        started.append(ref.task)
        await node.report(ref, Outcome.SUCCEEDED)
        assert spread(owners, started) <= 1
    assert spread(owners, started) == 0


@pytest.mark.parametrize("is_counted", [False, True])
async def test_tenants_take_turns_while_there_is_room_for_many(lab, is_counted):
    node = await lab.node(cpu=64)
    owners = await crowd(lab, tenants=6, each=9)
    for rounds in range(1, 17):
        if is_counted:
            lab.parts.resource_manager._prioritizer.recount()
        await lab.parts.resource_manager.tick()
        started = await lab.run_on(node)
        assert len(started) == 3 * rounds
        assert spread(owners, started) <= 3


async def start_one_by_one(lab, node, count):
    """Let tasks run one after the other, and return them in that order."""
    started = []
    for _ in range(count):
        await lab.schedule()
        (ref,) = await node.starts()
        started.append(ref.task)
        await node.report(ref, Outcome.SUCCEEDED)
    return started


async def test_whose_turn_it_is_starts_what_comes_first_of_its_own(lab):
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
    """Let as much start as there is room for, and return it."""
    lab.parts.resource_manager._prioritizer.recount()
    while await lab.parts.resource_manager.tick():
        pass
    return await lab.run_on(node)


@pytest.mark.parametrize("room", [3, 7])
async def test_who_has_its_turn_starts_nothing_that_others_must_start_before(lab, room):
    node = await lab.node(cpu=room)
    early = await crowd(lab, tenants=7, each=1)
    for number in range(7):
        by = await lab.credential(f"tenant-{number}")
        await lab.submit_all([lab.spec(cpu=1, delay_tolerance=3600)] * 3, by=by)
    assert await fill(lab, node) <= set(early)


@pytest.mark.parametrize("pressing", [{"delay_tolerance": 10}, {"queue": "urgent"}])
async def test_who_presses_fills_a_large_fleet_before_those_who_do_not(lab, pressing):
    node = await lab.node(cpu=24)
    patient = {"delay_tolerance": 3600}
    first = {one.id for one in await lab.submit_all([lab.spec(cpu=1, **pressing)] * 24)}
    for memory in range(100, 106):
        resources = ResourcesRequest(cpu=1, memory_mb=memory)
        spec = lab.spec(resources=resources, **patient)
        await lab.submit_all([spec] * 8, by=lab.stranger)
    assert await fill(lab, node) == first


async def test_the_first_of_many_lines_come_before_what_is_behind_them(lab):
    node = await lab.node(cpu=16)
    first = set()
    for memory in range(100, 116):
        resources = ResourcesRequest(cpu=1, memory_mb=memory)
        specs = [lab.spec(resources=resources, delay_tolerance=time) for time in (10, *[3600] * 4)]
        first.add((await lab.submit_all(specs))[0].id)
    assert await fill(lab, node) == first


async def test_a_tenant_that_may_start_little_starts_what_presses(lab):
    await lab.conn.execute(
        "insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,"
        " max_running) values ('two', '300 s', '24 h', '36525 d', 1, 2)"
    )
    await lab.conn.execute("update tenants set plan = 'two' where name = 'acme'")
    node = await lab.node(cpu=64)
    specs = [lab.spec(cpu=cpu, delay_tolerance=time) for cpu, time in ((1, 10), (2, 3600)) * 2]
    answers = await lab.submit_all(specs, by=lab.stranger)
    others = {one.id for one in await lab.submit_all([lab.spec(cpu=1, delay_tolerance=7200)] * 6)}
    assert await fill(lab, node) == {answers[0].id, answers[2].id} | others


async def test_of_lines_that_may_start_one_each_a_round_takes_as_many_as_it_can(lab):
    node = await lab.node(cpu=64)
    specs = [lab.spec(cpu=1, concurrency={"key": str(n % 9), "limit": 1}) for n in range(27)]
    await lab.submit_all(specs)
    lab.parts.resource_manager._prioritizer.recount()
    counts = [len(await lab.run_on(node))]
    while await lab.parts.resource_manager.tick():
        counts.append(len(await lab.run_on(node)))
    assert len(await lab.run_on(node)) == 9
    assert counts.index(9) - counts.index(3) == 2


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_waits_while_there_is_room(lab, seed):
    dice = random.Random(seed)
    room = dice.choice((7, 12, 24))
    chaos = Chaos(lab, await lab.node(cpu=room), room, dice)
    for _ in range(40):
        await chaos.step()
        while await lab.parts.resource_manager.tick():
            pass
        running, waiting = await chaos.rows("running"), await chaos.rows("waiting")
        assert not waiting or len(running) == room


async def test_every_line_comes_up_however_many_there_are(lab):
    node = await lab.node(cpu=64)
    await crowd(lab, tenants=10, each=2)
    ticks = 1
    while await lab.parts.resource_manager.tick():
        ticks += 1
        # A count in between must not let the same ones begin again.
        lab.parts.resource_manager._prioritizer.recount()
    assert len(await lab.run_on(node)) == 20
    assert ticks == 7


async def test_of_many_lines_the_tasks_that_press_most_come_first(lab):
    node = await lab.node(cpu=3)
    patient = [await lab.submit(cpu=1, delay_tolerance="60s") for _ in range(3)]
    other = [await lab.submit(by=lab.stranger, cpu=1, delay_tolerance="61s") for _ in range(3)]
    other.append(await lab.submit(cpu=0.5, delay_tolerance="62s"))
    pressing = [await lab.submit(cpu=1, delay_tolerance="9s") for _ in range(3)]
    assert await lab.parts.resource_manager.tick() is True
    assert await lab.run_on(node) == set(pressing)
    assert {await lab.status(task) for task in patient + other} == {"waiting"}


async def test_a_task_that_must_start_earlier_than_what_was_read_is_seen_at_once(lab):
    node = await lab.node(cpu=4)
    await lab.submit_all([lab.spec(cpu=1, delay_tolerance="60s") for _ in range(6)])
    await lab.parts.resource_manager.tick()
    urgent = await lab.submit(cpu=1, delay_tolerance="1s")
    await lab.parts.resource_manager.tick()
    assert urgent in await lab.run_on(node)


async def test_lines_that_may_not_have_the_room_do_not_hide_those_that_may(lab):
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
    await lab.parts.cluster_manager.tick()
    assert await lab.parts.resource_manager.tick() is True
    assert await lab.status(brief) == "waiting"
    await lab.parts.resource_manager.tick()
    assert await lab.status(brief) == "running"
    assert {await lab.status(task) for task in shut_out} == {"waiting"}


async def test_a_count_that_is_asked_for_during_another_one_follows_it(lab, monkeypatch):
    prioritizer = lab.parts.resource_manager._prioritizer
    count = waiting.pairs_with_work

    async def late(conn):
        found = await count(conn)
        prioritizer.recount()
        return found

    monkeypatch.setattr(waiting, "pairs_with_work", late)
    async with lab.database.connection() as conn:
        await prioritizer.shapes(conn)
    assert prioritizer._pace.is_due


async def test_what_is_noted_while_lines_are_counted_is_not_forgotten(lab):
    prioritizer = lab.parts.resource_manager._prioritizer
    async with asyncio.timeout(10), lab.database.connection() as conn:
        async with lab.conn.transaction():
            await lab.conn.execute("lock table live in access exclusive mode")
            count = asyncio.create_task(prioritizer.shapes(conn))
            while not await lab.conn.fetchval("select count(*) from pg_locks where not granted"):
                await asyncio.sleep(0)
            prioritizer.note([((1, 7), EARLIEST)])
        assert 7 in await count
