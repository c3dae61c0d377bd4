import asyncio

import pytest

from duly.errors import NotLeading
from duly.store.attempts import leases
from duly.store.fleet import fleet_snapshot, servers
from duly.store.fleet.servers import Term
from tests.server.lab import seconds


async def term_of(lab):
    return tuple(await lab.conn.fetchrow("select term, server from terms"))


async def second(lab):
    """Start another server, a follower."""
    components = lab.server()
    await components.cluster_manager.tick()
    assert components.cluster_manager.term is None
    return components


async def test_one_server_leads_at_a_time(lab):
    other = await second(lab)
    for _ in range(5):
        await lab.clock.move(seconds(1))
        await lab.components.cluster_manager.tick()
        await other.cluster_manager.tick()
    assert lab.components.cluster_manager.term == Term(1, lab.components.cluster_manager.number)
    assert other.cluster_manager.term is None


async def test_one_of_many_concurrently_started_servers_leads(lab):
    await lab.conn.execute("delete from terms")
    servers = [lab.server() for _ in range(5)]
    await asyncio.gather(*(one.cluster_manager.tick() for one in servers))
    assert len([one for one in servers if one.cluster_manager.term is not None]) == 1
    assert len({one.cluster_manager.number for one in servers}) == 5


async def test_another_server_takes_over_when_the_term_has_expired_and_not_before(lab, caplog):
    other = await second(lab)
    await lab.clock.move(lab.settings.leases.term_ttl - seconds(0.1))
    await other.cluster_manager.tick()
    assert other.cluster_manager.term is None
    await lab.clock.move(seconds(0.1))
    await other.cluster_manager.tick()
    assert other.cluster_manager.term == Term(2, other.cluster_manager.number)
    await lab.components.cluster_manager.tick()
    assert [record.message for record in caplog.records] == [
        "server-1 leads now (term 2)",
        "server-0 no longer leads: term 1 has ended",
    ]


async def test_a_leader_stops_trusting_its_term_before_another_may_take_over(lab):
    manager = lab.components.cluster_manager
    await lab.clock.move(seconds(2.4))
    assert manager.term is not None
    await lab.clock.move(seconds(0.1))
    assert manager.term is None


async def test_a_late_leader_keeps_its_term_if_no_server_took_over(lab):
    manager = lab.components.cluster_manager
    term = manager.term
    await lab.clock.move(seconds(60))
    assert manager.term is None
    await manager.tick()
    assert manager.term == term


async def test_a_leader_that_resumes_after_its_term_writes_nothing(lab):
    node = await lab.node()
    task = await lab.submit()
    stale = lab.components.cluster_manager.term
    other = await second(lab)
    await lab.clock.move(seconds(3))
    await other.cluster_manager.tick()
    await node.heartbeat()
    with pytest.raises(NotLeading):
        async with lab.database.connection() as conn:
            await lease(conn, stale, task, node)
    with pytest.raises(NotLeading):
        async with lab.database.transaction() as conn:
            await servers.hold(conn, stale)
    assert await lab.status(task) == "waiting"
    async with lab.database.connection() as conn:
        assert await lease(conn, other.cluster_manager.term, task, node)
    assert await lab.status(task) == "running"


async def lease(conn, term, task, node):
    shape = await conn.fetchval("select shape_id from live where id = $1", task)
    placement = (task, node.incarnation, 0, shape)
    marks = (await fleet_snapshot.read_snapshot(conn)).fence
    return await leases.lease(
        conn, term, [placement], revision=marks.revision, given=None, backstop=seconds(15)
    )


@pytest.mark.parametrize("due_in", [1, 60])
async def test_every_duty_of_a_leader_whose_term_has_ended_writes_nothing(lab, due_in):
    node = await lab.node()
    ref = await lab.run(node)
    # While a task is due the queue manager gets no further; else it takes back what was lost.
    later = await lab.submit(run_at=lab.clock.now + seconds(due_in))
    waiting = await lab.submit()
    await lab.rejoin(node)
    await lab.clock.move(seconds(1))
    # It has just checked the clock when it is suspended; meanwhile another server takes over.
    await lab.conn.execute("update terms set term = term + 1")
    components = lab.components
    assert components.cluster_manager.term is not None
    for duty in (components.queue_manager, components.resource_manager, components.retention):
        with pytest.raises(NotLeading):
            await duty.tick()
    tasks = (ref.task, later, waiting)
    assert [await lab.status(task) for task in tasks] == ["running", "scheduled", "waiting"]


async def test_every_step_of_retention_in_an_ended_term_is_refused(lab):
    retention, term = lab.components.retention, lab.components.cluster_manager.term
    await lab.conn.execute("update terms set term = term + 1")
    for step in (
        retention._drop_oldest_day,
        retention._plan_retention.step,
        retention._artifact_gc.step,
    ):
        with pytest.raises(NotLeading):
            await step(term)


async def test_a_leader_notices_that_its_term_has_ended(lab):
    await lab.conn.execute("update terms set term = term + 1, server = 99, expires_at = 'infinity'")
    await lab.components.cluster_manager.tick()
    assert lab.components.cluster_manager.term is None
    assert await term_of(lab) == (2, 99)


async def test_another_server_takes_over_at_once_when_the_leader_stops(lab):
    other = await second(lab)
    await lab.components.cluster_manager.stop()
    assert lab.components.cluster_manager.term is None
    await other.cluster_manager.tick()
    assert other.cluster_manager.term == Term(2, other.cluster_manager.number)


async def test_a_follower_that_stops_does_not_affect_the_leader(lab):
    other = await second(lab)
    await other.cluster_manager.stop()
    await lab.components.cluster_manager.tick()
    assert await term_of(lab) == (1, lab.components.cluster_manager.number)


async def test_a_takeover_waits_for_open_transactions_of_the_old_term(lab):
    other = await second(lab)
    term = lab.components.cluster_manager.term
    await lab.clock.move(seconds(3))
    async with (
        asyncio.timeout(5),
        asyncio.TaskGroup() as group,
        lab.database.transaction() as conn,
    ):
        await servers.hold(conn, term)
        taking = group.create_task(other.cluster_manager.tick())
        while not await lab.conn.fetchval(
            "select exists (select 1 from pg_locks where not granted)"
        ):
            await asyncio.sleep(0)
        assert not taking.done()
        assert await term_of(lab) == (1, term.server)
    assert other.cluster_manager.term is not None


async def test_a_term_is_renewed_evenly_however_long_renewals_take(lab):
    manager, interval = lab.components.cluster_manager, lab.settings.leases.term_renewal
    await manager.tick()
    assert manager.pause() == interval
    await lab.clock.move(interval / 4)
    assert manager.pause() == interval * 3 / 4
    await lab.clock.move(interval)
    assert manager.pause() == seconds(0)


async def test_a_server_that_leads_again_finds_tasks_submitted_meanwhile(lab):
    node = await lab.node()
    await lab.schedule()
    other = lab.server()
    await lab.components.cluster_manager.stop()
    await other.cluster_manager.tick()
    (admitted,) = await lab.submit_all([lab.spec()], components=other)
    await other.cluster_manager.stop()
    await lab.schedule()
    assert await lab.run_on(node) == {admitted.id}
