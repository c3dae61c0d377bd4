import pytest

from duly import wire
from duly.errors import Conflict, NotFound, Unauthenticated
from duly.store.accounts.tenants import generate_key
from tests.server.lab import capacity_of, seconds


async def used_on(lab, node):
    """Return the thousandths of a core that are leased on a node."""
    return await lab.conn.fetchval(
        """select coalesce(sum((s.needs ->> 'cpu_milli')::int), 0)
             from live l join shapes s on s.id = l.shape_id where l.node_id = $1""",
        node.id,
    )


async def test_no_node_is_ever_overcommitted(lab):
    nodes = [await lab.node(cpu=1), await lab.node(cpu=2.5)]
    await lab.submit_all([lab.spec(cpu=cpu) for cpu in (0.3, 0.7, 1, 2) for _ in range(5)])
    for _ in range(4):
        await lab.schedule()
        assert await used_on(lab, nodes[0]) <= 1000
        assert await used_on(lab, nodes[1]) <= 2500
    # No waiting task would fit into the rest.
    assert await used_on(lab, nodes[0]) > 1000 - 700
    assert await used_on(lab, nodes[1]) > 2500 - 700


async def test_the_scarcest_resource_limits_placement(lab):
    node = await lab.node(cpu=64, memory_mb=600)
    await lab.submit_all([lab.spec() for _ in range(5)])
    await lab.schedule()
    assert len(await lab.run_on(node)) == 2


async def test_resources_are_free_as_soon_as_the_report_is_in(lab):
    node = await lab.node(cpu=1)
    ref = await lab.run(node, cpu=1)
    task = await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    await node.report(ref)
    assert (await lab.start(node, task)).task == task


async def test_on_a_full_fleet_an_ended_attempt_starts_a_round_and_a_submit_does_not(lab):
    nudged = lab.components.resource_manager._nudged
    node = await lab.node(cpu=1)
    ref = await lab.run(node, cpu=1)
    await lab.submit(cpu=1)
    await lab.schedule()
    nudged.clear()
    await lab.submit(cpu=1)
    assert not nudged.is_set()
    # The last round did not try this shape.
    await lab.submit(cpu=0.5)
    assert nudged.is_set()
    nudged.clear()
    await node.report(ref)
    assert nudged.is_set()
    nudged.clear()
    await lab.submit(cpu=1)
    assert nudged.is_set()


async def test_a_task_that_fits_nowhere_waits_while_smaller_ones_are_placed(lab):
    node = await lab.node(cpu=2)
    await lab.run(node, cpu=1)
    large, small = await lab.submit(cpu=2), await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.status(large) == "waiting"
    assert await lab.status(small) == "running"


async def test_capacity_is_held_for_a_large_task_after_half_of_its_tolerance(lab):
    node = await lab.node(cpu=2)
    first, second = await lab.run(node, cpu=1), await lab.run(node, cpu=1)
    large = await lab.submit(cpu=2, delay_tolerance="20s")
    await lab.clock.move(seconds(10))
    await node.heartbeat(first, second)
    small = [await lab.submit(cpu=1) for _ in range(3)]
    for ref in (first, second):
        await node.report(ref)
        await lab.schedule()
        assert [await lab.status(task) for task in small] == ["waiting"] * 3
    assert await lab.status(large) == "running"


async def test_capacity_is_held_for_every_large_task_of_a_lost_node(lab):
    lost = await lab.node(cpu=4)
    large = [(await lab.run(lost, cpu=2)).task for _ in range(2)]
    stays = await lab.node(cpu=2)
    running = [await lab.run(stays, cpu=1) for _ in range(2)]
    small = [await lab.submit(cpu=1) for _ in range(3)]
    await lab.rejoin(lost, cpu=0.5)
    await lab.sweep()
    for task in large:
        assert await lab.tally(task) == (0, 1)
        for ref in running:
            assert await lab.status(task) == "waiting"
            await stays.report(ref)
            await lab.schedule()
            assert [await lab.status(task) for task in small] == ["waiting"] * 3
        running = await stays.starts()
        assert [ref.task for ref in running] == [task]


async def test_the_earliest_start_by_goes_first(lab):
    node = await lab.node(cpu=1)
    late = await lab.submit(cpu=1, delay_tolerance="60s")
    soon = await lab.submit(cpu=1, delay_tolerance="5s")
    await lab.schedule()
    assert await lab.run_on(node) == {soon}
    assert await lab.status(late) == "waiting"


async def test_of_equals_the_higher_priority_goes_first(lab):
    node = await lab.node(cpu=1)
    await lab.submit(cpu=1, priority=1)
    high = await lab.submit(cpu=1, priority=2)
    await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {high}


async def test_tasks_that_another_server_admitted_are_found(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    node = await lab.node()
    await lab.schedule()
    (answer,) = await lab.submit_all([lab.spec()], components=other)
    await lab.clock.move(seconds(1))
    await lab.schedule()
    assert await lab.run_on(node) == {answer.id}


async def test_a_server_that_does_not_lead_places_nothing(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    await lab.node()
    task = await lab.submit()
    assert await other.resource_manager.tick() is False
    assert await lab.status(task) == "waiting"


async def test_nothing_is_leased_to_a_node_whose_lease_has_expired(lab):
    node = await lab.node()
    task = await lab.submit()
    await lab.clock.move(lab.settings.leases.ttl)
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    await node.heartbeat()
    assert (await lab.start(node, task)).task == task


async def test_a_draining_node_keeps_its_attempts_and_gets_no_new_ones(lab):
    node = await lab.node()
    ref = await lab.run(node)
    manager = lab.components.cluster_manager
    await manager.drain(node.id, draining=True)
    task = await lab.submit()
    await lab.schedule()
    assert await lab.run_on(node) == {ref.task}
    assert await node.starts(ref) == []
    assert await node.heartbeat(ref) == []
    assert await node.report(ref)
    await manager.drain(node.id, draining=False)
    assert (await lab.start(node, task)).task == task


async def test_an_unknown_node_cannot_be_drained(lab):
    with pytest.raises(NotFound):
        await lab.components.cluster_manager.drain(987_654, draining=True)


async def test_a_node_stays_drained_when_its_agent_restarts(lab):
    node = await lab.node()
    await lab.components.cluster_manager.drain(node.id, draining=True)
    await lab.rejoin(node)
    task = await lab.submit()
    await lab.schedule()
    assert await lab.status(task) == "waiting"


async def test_a_node_may_come_back_with_another_capacity(lab):
    node = await lab.node(cpu=1)
    task = await lab.submit(cpu=2)
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    node = await lab.rejoin(node, cpu=2)
    assert (await lab.start(node, task)).task == task


async def test_a_node_cannot_join_under_a_taken_name_or_with_an_invalid_token(lab):
    node = await lab.node()
    manager = lab.components.cluster_manager
    request = wire.JoinRequest(
        name=node.name, capacity=wire.capacity(capacity_of(1, 1024)), key=generate_key()
    )
    with pytest.raises(Conflict):
        await manager.join(await manager.create_token(seconds(60)), request)
    with pytest.raises(Unauthenticated):
        await manager.join("dulyjoin_wrong", request)
    token = await manager.create_token(seconds(60))
    await lab.clock.move(seconds(60))
    with pytest.raises(Unauthenticated):
        await manager.join(token, request)
