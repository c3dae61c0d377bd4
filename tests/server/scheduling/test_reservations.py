"""Reservations keep resources of nodes free of tasks."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly.errors import Conflict, NotFound
from duly.model.resources import Resources
from duly.store.fleet import overview, reservations
from tests.server.lab import between_placing_and_leasing

HOUR = timedelta(hours=1)


def cpu(cores):
    return Resources(cpu_milli=int(cores * 1000))


async def reserve(lab, cores, *, node=None, by=None, lasts=None):
    return await lab.components.reservations.reserve(
        by or lab.client,
        cpu(cores),
        node_id=node and node.id,
        expires_at=lasts and lab.clock.now + lasts,
    )


async def free(lab, node):
    async with lab.database.connection() as conn:
        offers = await overview.read_offers(conn)
    return next(offer.free.cpu_milli / 1000 for offer in offers if offer.node_id == node.id)


async def test_no_task_is_placed_on_reserved_resources(lab):
    node = await lab.node(cpu=2)
    reservation = await reserve(lab, 1.8)
    task = await lab.submit(cpu=0.5)
    await lab.schedule()
    assert await lab.status(task) == "waiting"
    assert await free(lab, node) == 0.2
    await lab.components.reservations.release(lab.client, reservation)
    await lab.schedule()
    assert await lab.status(task) == "running"


async def test_a_reservation_gets_only_free_resources(lab):
    node = await lab.node(cpu=2)
    await lab.run(node, cpu=1.5)
    with pytest.raises(Conflict, match=r"busy: 0\.5 CPU short"):
        await reserve(lab, 1)
    await reserve(lab, 0.5)
    assert await free(lab, node) == 0


async def test_a_placement_decided_before_a_reservation_is_not_leased(lab):
    node = await lab.node(cpu=2)
    task = await lab.submit(cpu=1.5)
    await between_placing_and_leasing(lab, reserve(lab, 1))
    assert await lab.status(task) == "waiting"
    assert await free(lab, node) == 1


async def test_a_reservation_is_made_where_it_fits_or_on_the_requested_node(lab):
    small, large = await lab.node(cpu=1), await lab.node(cpu=8)
    await reserve(lab, 2)
    await reserve(lab, 1, node=large)
    assert (await free(lab, small), await free(lab, large)) == (1, 5)
    with pytest.raises(Conflict, match="too small by 1 CPU"):
        await reserve(lab, 2, node=small)


async def test_a_reservation_outlives_its_agent_but_not_its_node(lab):
    node = await lab.node(cpu=4)
    await reserve(lab, 1)
    node = await lab.rejoin(node, cpu=4)
    assert await free(lab, node) == 3
    await lab.components.cluster_manager.remove(node.id)
    assert await lab.count("reservations") == 0


async def test_a_reservation_expires_by_itself(lab):
    node = await lab.node(cpu=4)
    reservation = await reserve(lab, 3, lasts=HOUR)
    await lab.clock.move(HOUR)
    node = await lab.rejoin(node, cpu=4)
    assert await free(lab, node) == 4
    with pytest.raises(NotFound):
        await lab.components.reservations.release(lab.client, reservation)
    await lab.components.cluster_manager.tick()
    async with lab.database.connection() as conn:
        await reservations.drop_expired(conn)
    assert await lab.count("reservations") == 0


async def test_a_reservation_grows_only_into_free_resources(lab):
    node = await lab.node(cpu=4)
    reservation = await reserve(lab, 1)
    await lab.run(node, cpu=2)
    change = lab.components.reservations.change
    with pytest.raises(Conflict):
        await change(lab.client, reservation, cpu(2.5), msgspec.UNSET)
    await change(lab.client, reservation, cpu(2), msgspec.UNSET)
    assert await free(lab, node) == 0
    await change(lab.client, reservation, cpu(0.5), lab.clock.now + HOUR)
    assert await free(lab, node) == 1.5


async def test_changing_a_reservation_that_is_being_released_is_not_found(lab):
    await lab.node(cpu=4)
    reservation = await reserve(lab, 1)
    async with lab.conn.transaction():
        await lab.conn.execute("delete from reservations where id = $1", reservation)
        change = lab.components.reservations.change(
            lab.client, reservation, None, lab.clock.now + HOUR
        )
        changing = asyncio.create_task(change)
        await wait_for_lock_wait(lab)
    with pytest.raises(NotFound):
        await changing


async def wait_for_lock_wait(lab):
    """Return once a statement waits for a lock."""
    async with asyncio.timeout(10):
        while not await lab.conn.fetchval(
            "select exists (select 1 from pg_locks where not granted)"
        ):
            await asyncio.sleep(0.005)


async def test_a_tenant_sees_and_changes_only_its_own_reservations(lab):
    node = await lab.node(cpu=4)
    reservation = await reserve(lab, 1)
    ref = await lab.run(node)
    async with lab.database.connection() as conn:
        mine = await reservations.read_allocations(conn, lab.client.tenant_id, limit=10)
        others = await reservations.read_allocations(conn, lab.stranger.tenant_id, limit=10)
    assert [(allocation.id, allocation.kind, allocation.node) for allocation in mine] == [
        (ref.task, "task", node.name),
        (reservation, "reservation", node.name),
    ]
    assert others == []
    with pytest.raises(NotFound):
        await lab.components.reservations.release(lab.stranger, reservation)
    with pytest.raises(NotFound):
        await lab.components.reservations.change(lab.stranger, reservation, cpu(2), msgspec.UNSET)


async def test_a_reservation_beyond_the_fair_share_is_refused_while_others_wait(lab):
    node = await lab.node(cpu=4)
    await lab.conn.execute("insert into tenants (name, plan) values ('other', 'unlimited')")
    other = await lab.credential("other")
    [running] = await lab.submit_all([lab.spec(cpu=1)], by=other)
    await lab.schedule()
    assert await lab.status(running.id) == "running"
    await lab.submit_all([lab.spec(cpu=1)], by=other)
    with pytest.raises(Conflict, match=r"fair share of the nodes, which is 50 %, while tasks of 1"):
        await reserve(lab, 3)
    reservation = await reserve(lab, 2)
    with pytest.raises(Conflict, match="fair share"):
        await lab.components.reservations.change(lab.client, reservation, cpu(2.5), None)
    await lab.schedule()
    # Nobody waits any more.
    await lab.components.reservations.release(lab.client, reservation)
    await reserve(lab, 2, node=node)
