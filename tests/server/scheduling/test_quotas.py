"""Tenants never have more at once than they may, and keep nobody else from anything."""

import asyncio
import json

import pytest

from duly.config import SchedulingSettings, Settings
from duly.model.resources import Resources
from duly.server.limit_book import LimitBook
from duly.server.roster import Roster
from duly.store import leases, stock
from duly.store.database import QuotasChanged
from tests.server.lab import between_placing_and_leasing, seconds


@pytest.fixture
def settings():
    return Settings(scheduling=SchedulingSettings(window=3))


@pytest.fixture(params=["counted", "remembered"], autouse=True)
def roster(request, lab):
    """What runs is counted in every round, or remembered because counting takes long."""
    if request.param == "remembered":
        lab.parts.resource_manager._roster = Roster(seconds(30), quick=seconds(-1), patience=1)


async def limit(lab, tenant, *, running=None, resources=None):
    """Give a tenant a plan of its own, which may have limits."""
    await lab.conn.execute(
        "insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight, "
        "max_running, max_resources) values ($1, '300 s', '24 h', '36525 d', 1, $2, $3) "
        "on conflict (name) do update "
        "set max_running = excluded.max_running, max_resources = excluded.max_resources",
        f"plan of {tenant}",
        running,
        None if resources is None else json.dumps(resources),
    )
    await lab.conn.execute(
        "update tenants set plan = $2 where name = $1", tenant, f"plan of {tenant}"
    )


@pytest.fixture(autouse=True)
async def acme(lab):
    """The tenant that has limits is the stranger; the default one has none."""
    await limit(lab, "acme", running=2)


async def suspend(lab, tenant, *, since="duly.now()"):
    await lab.conn.execute(f"update tenants set suspended_at = {since} where name = $1", tenant)


async def settle(lab, parts=None):
    """Schedule until a round has nothing more to do."""
    await lab.parts.cluster_manager.tick()
    manager = (parts or lab.parts).resource_manager
    while await manager.tick():
        pass


async def submit_many(lab, count, **fields):
    by = fields.pop("by", lab.stranger)
    answers = await lab.submit_all([lab.spec(**fields) for _ in range(count)], by=by)
    return [answer.id for answer in answers]


async def test_a_tenant_that_comes_later_is_found_to_be_limited_and_again_when_all_is_read_anew(
    lab,
):
    book = LimitBook()
    limited = await lab.conn.fetchval("select id from tenants where name = 'acme'")
    tenants = {await lab.conn.fetchval("select id from tenants where name = 'default'")}
    await book.learn(lab.conn, tenants)
    tenants.add(limited)
    await book.learn(lab.conn, tenants)
    assert book.counted(tenants) == {limited}
    book.forget()
    await book.learn(lab.conn, tenants)
    assert book.counted(tenants) == {limited}


async def test_no_more_run_than_may_and_the_next_starts_when_one_ends(lab):
    node = await lab.node(cpu=64)
    tasks = await submit_many(lab, 5)
    await settle(lab)
    assert await lab.run_on(node) == set(tasks[:2])
    first, _ = await node.starts()
    await node.report(first)
    await settle(lab)
    assert await lab.run_on(node) == {*tasks[1:3]}


async def test_it_holds_over_all_shapes_together(lab):
    node = await lab.node(cpu=64)
    for cpu in (0.1, 0.2, 0.3, 0.4):
        await submit_many(lab, 2, cpu=cpu)
    await settle(lab)
    assert len(await lab.run_on(node)) == 2


async def test_a_tenant_at_its_limit_fills_no_window(lab):
    node = await lab.node(cpu=64)
    await submit_many(lab, 9, delay_tolerance="1s")
    for cpu in (0.1, 0.2, 0.3, 0.4):
        await submit_many(lab, 2, cpu=cpu, delay_tolerance="1s")
    await settle(lab)
    others = [await lab.submit() for _ in range(3)]
    await lab.parts.resource_manager.tick()
    assert await lab.run_on(node) > set(others)
    assert len(await lab.run_on(node)) == 5


async def test_no_room_is_held_for_what_may_not_start(lab):
    node = await lab.node(cpu=4)
    first = await lab.run(node, cpu=3, execution_cap="1h")
    await limit(lab, "acme", running=1)
    theirs = await lab.submit(by=lab.stranger, cpu=0.5, delay_tolerance="20s", execution_cap="1h")
    await lab.submit(by=lab.stranger, cpu=2, delay_tolerance="20s", execution_cap="1h")
    await settle(lab)
    assert await lab.run_on(node) == {first.task, theirs}
    await lab.clock.move(seconds(10))
    await node.heartbeat(first)
    mine = await lab.submit(cpu=0.5, execution_cap="2h")
    await settle(lab)
    assert await lab.run_on(node) == {first.task, theirs, mine}


async def test_resources_at_once_count_what_runs(lab):
    await limit(lab, "acme", resources={"cpu_milli": 2600, "gpu": 9})
    node = await lab.node(cpu=64)
    large = await submit_many(lab, 2, cpu=2, delay_tolerance="1s")
    small = await submit_many(lab, 2, cpu=0.5)
    await settle(lab)
    assert await lab.run_on(node) == {large[0], small[0]}


async def test_what_is_reserved_counts_against_resources_at_once(lab):
    await limit(lab, "acme", resources={"cpu_milli": 2000})
    node = await lab.node(cpu=64)
    await lab.parts.reservations.reserve(
        lab.stranger,
        Resources(cpu_milli=1500),
        node_id=None,
        expires_at=lab.clock.now + seconds(60),
    )
    tasks = await submit_many(lab, 4, cpu=0.5)
    await settle(lab)
    assert await lab.run_on(node) == {tasks[0]}
    for _ in range(6):
        await lab.clock.move(seconds(10))
        await node.heartbeat()
    await settle(lab)
    assert await lab.run_on(node) == set(tasks)


async def test_nothing_of_a_suspended_tenant_starts_and_what_runs_goes_on(lab):
    node = await lab.node(cpu=64)
    (task,) = await submit_many(lab, 1)
    await settle(lab)
    await suspend(lab, "acme")
    waiting = await submit_many(lab, 1)
    await settle(lab)
    assert await lab.run_on(node) == {task}
    (ref,) = await node.starts()
    assert await node.report(ref)
    await settle(lab)
    assert await lab.run_on(node) == set()
    await suspend(lab, "acme", since="null")
    await settle(lab)
    assert await lab.run_on(node) == set(waiting)


async def test_a_limit_that_shrinks_while_tasks_are_placed_is_kept(lab):
    node = await lab.node(cpu=64)
    await submit_many(lab, 3)
    await between_placing_and_leasing(lab, limit(lab, "acme", running=1))
    assert await lab.run_on(node) == set()
    await settle(lab)
    assert len(await lab.run_on(node)) == 1


async def test_a_tenant_that_is_suspended_while_its_tasks_are_placed_gets_nothing(lab):
    node = await lab.node(cpu=64)
    await lab.submit()
    await between_placing_and_leasing(lab, suspend(lab, "default"))
    await settle(lab)
    assert await lab.run_on(node) == set()
    await suspend(lab, "default", since="null")
    await settle(lab)
    assert len(await lab.run_on(node)) == 1


async def test_a_reservation_that_is_made_while_tasks_are_placed_counts(lab):
    await limit(lab, "acme", resources={"cpu_milli": 1000})
    node, other = await lab.node(cpu=8), await lab.node(cpu=2)
    await submit_many(lab, 1, cpu=1)
    reserve = lab.parts.reservations.reserve(
        lab.stranger, Resources(cpu_milli=1000), node_id=node.id, expires_at=None
    )
    await between_placing_and_leasing(lab, reserve)
    await settle(lab)
    assert await lab.run_on(node) | await lab.run_on(other) == set()


async def test_a_lease_that_takes_effect_late_is_refused(lab):
    node = await lab.node(cpu=64)
    tasks = await submit_many(lab, 4)
    marks = (await stock.read_stock(lab.conn)).marks
    await settle(lab)
    shape = await lab.conn.fetchval("select shape_id from live where id = $1", tasks[3])
    with pytest.raises(QuotasChanged):
        async with lab.database.connection() as conn:
            await leases.lease(
                conn,
                lab.parts.cluster_manager.term,
                [(tasks[3], node.incarnation, 0, shape)],
                revision=marks.revision,
                given=marks.given,
                backstop=seconds(15),
            )
    assert await lab.run_on(node) == set(tasks[:2])


async def test_the_next_leader_goes_on_with_what_runs(lab):
    node = await lab.node(cpu=64)
    tasks = await submit_many(lab, 4)
    await settle(lab)
    other = lab.server()
    await lab.clock.move(seconds(5))
    await node.heartbeat()
    await other.cluster_manager.tick()
    await other.cluster_manager.tick()
    assert other.cluster_manager.term is not None
    await settle(lab, other)
    assert await lab.run_on(node) == set(tasks[:2])
    (first, _) = await node.starts()
    await node.report(first)
    await settle(lab, other)
    assert await lab.run_on(node) == set(tasks[1:3])


@pytest.mark.parametrize(
    ("limits", "fields"),
    [
        ({"running": 2}, {}),
        ({"resources": {"cpu_milli": 1000}}, {"cpu": 0.5}),
        ({}, {"concurrency": {"key": "k", "limit": 2}}),
    ],
    ids=["running", "resources", "key"],
)
async def test_two_servers_that_both_believe_to_lead_start_no_more_than_may(lab, limits, fields):
    await limit(lab, "acme", **limits)
    node, other = await lab.node(cpu=64), lab.server()
    await submit_many(lab, 6, **fields)
    # The one has just looked at its watch when the other takes over.
    await lab.conn.execute("update terms set expires_at = duly.now()")
    await other.cluster_manager.tick()
    await other.cluster_manager.tick()
    assert None not in [parts.cluster_manager.term for parts in (lab.parts, other)]
    for _ in range(4):
        ticks = (parts.resource_manager.tick() for parts in (lab.parts, other))
        await asyncio.gather(*ticks, return_exceptions=True)
    assert len(await lab.run_on(node)) == 2


async def test_what_runs_on_a_node_that_is_silent_counts_until_it_is_taken_back(lab):
    silent = await lab.node(cpu=64)
    tasks = await submit_many(lab, 4)
    await settle(lab)
    await settle(lab)
    other = await lab.node(cpu=64)
    await silent.heartbeat(stopping=True)
    await settle(lab)
    await lab.clock.move(seconds(1))
    await settle(lab)
    assert await lab.run_on(silent) == set(tasks[:2])
    assert await lab.run_on(other) == set()


async def test_a_key_lets_so_many_run_of_each_tenant(lab):
    node = await lab.node(cpu=64)
    two = {"concurrency": {"key": "customer-7", "limit": 2}}
    await submit_many(lab, 4, by=lab.client, **two)
    await submit_many(lab, 2, by=lab.client, cpu=0.1, **two)
    await limit(lab, "acme", running=None)
    theirs = await submit_many(lab, 3, **two)
    free = await submit_many(lab, 2, by=lab.client)
    await settle(lab)
    running = await lab.run_on(node)
    assert set(free) <= running
    assert len(running & set(theirs)) == 2
    assert len(running) == 6
    started = await node.starts()
    mine = next(ref for ref in started if ref.task not in {*theirs, *free})
    await node.report(mine)
    await settle(lab)
    assert len(await lab.run_on(node)) == 6


async def test_the_smallest_limit_counts_among_those_that_run_and_the_next(lab):
    node = await lab.node(cpu=64)

    async def submit(limit):
        return await lab.submit(concurrency={"key": "k", "limit": limit})

    wide = [await submit(3) for _ in range(2)]
    await settle(lab)
    narrow = await submit(2)
    await settle(lab)
    assert await lab.run_on(node) == set(wide)
    refs = await node.starts()
    await node.report(refs[0])
    await settle(lab)
    assert await lab.run_on(node) == {refs[1].task, narrow}
    await submit(3)
    await settle(lab)
    assert await lab.run_on(node) == {refs[1].task, narrow}


async def test_lines_beyond_what_may_start_come_up_in_their_turn(lab):
    node = await lab.node(cpu=64)
    await limit(lab, "acme", running=1)
    tasks = [
        await lab.submit(by=lab.stranger, concurrency={"key": str(number), "limit": 1})
        for number in range(25)
    ]
    ended = []
    for _ in tasks:
        await settle(lab)
        (ref,) = await node.starts()
        assert await node.report(ref)
        ended.append(ref.task)
    assert sorted(ended) == tasks
