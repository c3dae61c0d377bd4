"""Tenants never exceed their limits, and a tenant at its limits does not delay others."""

import asyncio
import json

import pytest

from duly.config import SchedulingSettings, Settings
from duly.model.resources import Resources
from duly.server.scheduling.limits_cache import LimitsCache
from duly.server.scheduling.running_index import RunningIndex
from duly.store.attempts import leases
from duly.store.database import QuotasChanged
from duly.store.fleet import fleet_snapshot
from tests.server.lab import between_placing_and_leasing, seconds


@pytest.fixture
def settings():
    return Settings(scheduling=SchedulingSettings(window=3))


@pytest.fixture(params=["counted", "indexed"], autouse=True)
def running_index(request, lab):
    """Count running attempts in every round, or use the index because counts are slow."""
    if request.param == "indexed":
        lab.components.resource_manager._running_index = RunningIndex(
            seconds(30), quick_count=seconds(-1), max_slow_counts=1
        )


async def limit(lab, tenant, *, running=None, resources=None):
    """Give a tenant a plan of its own, with limits."""
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
    """Limit the stranger's tenant; the default one has no limits."""
    await limit(lab, "acme", running=2)


async def suspend(lab, tenant, *, since="duly.now()"):
    await lab.conn.execute(f"update tenants set suspended_at = {since} where name = $1", tenant)


async def settle(lab, components=None):
    """Schedule until a round has nothing more to do."""
    await lab.components.cluster_manager.tick()
    manager = (components or lab.components).resource_manager
    while await manager.tick():
        pass


async def submit_many(lab, count, **fields):
    by = fields.pop("by", lab.stranger)
    answers = await lab.submit_all([lab.spec(**fields) for _ in range(count)], by=by)
    return [answer.id for answer in answers]


async def test_limits_of_a_tenant_added_later_are_loaded_and_reloaded_after_invalidation(
    lab,
):
    cache = LimitsCache()
    limited = await lab.conn.fetchval("select id from tenants where name = 'acme'")
    tenants = {await lab.conn.fetchval("select id from tenants where name = 'default'")}
    await cache.load(lab.conn, tenants)
    tenants.add(limited)
    await cache.load(lab.conn, tenants)
    assert cache.tenants_to_count(tenants) == {limited}
    cache.invalidate()
    await cache.load(lab.conn, tenants)
    assert cache.tenants_to_count(tenants) == {limited}


async def test_max_running_holds_and_the_next_task_starts_when_one_ends(lab):
    node = await lab.node(cpu=64)
    tasks = await submit_many(lab, 5)
    await settle(lab)
    assert await lab.run_on(node) == set(tasks[:2])
    first, _ = await node.starts()
    await node.report(first)
    await settle(lab)
    assert await lab.run_on(node) == {*tasks[1:3]}


async def test_max_running_holds_over_all_shapes_together(lab):
    node = await lab.node(cpu=64)
    for cpu in (0.1, 0.2, 0.3, 0.4):
        await submit_many(lab, 2, cpu=cpu)
    await settle(lab)
    assert len(await lab.run_on(node)) == 2


async def test_a_tenant_at_its_limit_does_not_fill_the_window(lab):
    node = await lab.node(cpu=64)
    await submit_many(lab, 9, delay_tolerance="1s")
    for cpu in (0.1, 0.2, 0.3, 0.4):
        await submit_many(lab, 2, cpu=cpu, delay_tolerance="1s")
    await settle(lab)
    others = [await lab.submit() for _ in range(3)]
    await lab.components.resource_manager.tick()
    assert await lab.run_on(node) > set(others)
    assert len(await lab.run_on(node)) == 5


async def test_no_capacity_is_held_for_a_task_above_the_limits(lab):
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


async def test_max_resources_counts_running_tasks(lab):
    await limit(lab, "acme", resources={"cpu_milli": 2600, "gpu": 9})
    node = await lab.node(cpu=64)
    large = await submit_many(lab, 2, cpu=2, delay_tolerance="1s")
    small = await submit_many(lab, 2, cpu=0.5)
    await settle(lab)
    assert await lab.run_on(node) == {large[0], small[0]}


async def test_max_resources_counts_reservations(lab):
    await limit(lab, "acme", resources={"cpu_milli": 2000})
    node = await lab.node(cpu=64)
    await lab.components.reservations.reserve(
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


async def test_a_suspended_tenant_starts_nothing_and_its_running_tasks_go_on(lab):
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


async def test_a_limit_that_shrinks_during_a_round_holds(lab):
    node = await lab.node(cpu=64)
    await submit_many(lab, 3)
    await between_placing_and_leasing(lab, limit(lab, "acme", running=1))
    assert await lab.run_on(node) == set()
    await settle(lab)
    assert len(await lab.run_on(node)) == 1


async def test_a_tenant_suspended_during_a_round_starts_nothing(lab):
    node = await lab.node(cpu=64)
    await lab.submit()
    await between_placing_and_leasing(lab, suspend(lab, "default"))
    await settle(lab)
    assert await lab.run_on(node) == set()
    await suspend(lab, "default", since="null")
    await settle(lab)
    assert len(await lab.run_on(node)) == 1


async def test_a_reservation_made_during_a_round_counts(lab):
    await limit(lab, "acme", resources={"cpu_milli": 1000})
    node, other = await lab.node(cpu=8), await lab.node(cpu=2)
    await submit_many(lab, 1, cpu=1)
    reserve = lab.components.reservations.reserve(
        lab.stranger, Resources(cpu_milli=1000), node_id=node.id, expires_at=None
    )
    await between_placing_and_leasing(lab, reserve)
    await settle(lab)
    assert await lab.run_on(node) | await lab.run_on(other) == set()


async def test_a_lease_that_takes_effect_late_is_refused(lab):
    node = await lab.node(cpu=64)
    tasks = await submit_many(lab, 4)
    fence = (await fleet_snapshot.read_snapshot(lab.conn)).fence
    await settle(lab)
    shape = await lab.conn.fetchval("select shape_id from live where id = $1", tasks[3])
    with pytest.raises(QuotasChanged):
        async with lab.database.connection() as conn:
            await leases.lease(
                conn,
                lab.components.cluster_manager.term,
                [(tasks[3], node.incarnation, 0, shape)],
                revision=fence.revision,
                given=fence.given,
                backstop=seconds(15),
            )
    assert await lab.run_on(node) == set(tasks[:2])


async def test_the_next_leader_counts_what_already_runs(lab):
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
async def test_two_servers_that_both_believe_they_lead_keep_the_limits(lab, limits, fields):
    await limit(lab, "acme", **limits)
    node, other = await lab.node(cpu=64), lab.server()
    await submit_many(lab, 6, **fields)
    # The first server has just checked its term when the other takes over.
    await lab.conn.execute("update terms set expires_at = duly.now()")
    await other.cluster_manager.tick()
    await other.cluster_manager.tick()
    assert None not in [components.cluster_manager.term for components in (lab.components, other)]
    for _ in range(4):
        ticks = (components.resource_manager.tick() for components in (lab.components, other))
        await asyncio.gather(*ticks, return_exceptions=True)
    assert len(await lab.run_on(node)) == 2


async def test_attempts_on_a_stopping_node_count_until_they_are_taken_back(lab):
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


async def test_a_concurrency_key_limits_each_tenant_by_itself(lab):
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


async def test_the_smallest_limit_of_a_key_applies(lab):
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


async def test_parked_subqueues_of_a_limited_tenant_are_served_in_order(lab):
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
