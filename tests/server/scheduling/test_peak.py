"""At peak time some tasks are postponed, and some room is kept for urgent ones."""

from duly.store.fleet import servers
from tests.server.lab import seconds


async def later(lab, node, by):
    """Move the clock while a node runs its attempts."""
    await lab.clock.move(seconds(by))
    await node.heartbeat()
    await lab.components.cluster_manager.tick()


async def settle(lab):
    """Schedule until a round has nothing more to do."""
    await lab.components.cluster_manager.tick()
    while await lab.components.resource_manager.tick():
        pass


async def fill(lab, node, cores, **fields):
    """Run so many tasks of one core each."""
    await lab.submit_all([lab.spec(cpu=1, execution_cap="20h", **fields) for _ in range(cores)])
    await settle(lab)
    return await node.starts()


async def stored_peak(lab):
    """Return the state that the leader has stored; a round stores what the one before changed."""
    await lab.components.resource_manager.tick()
    async with lab.database.connection() as conn:
        return await servers.read_peak(conn)


async def test_postponed_tasks_wait_until_peak_time_ends_at_70_percent(lab):
    node = await lab.node(cpu=20)
    refs = await fill(lab, node, 16)
    postponed = [
        await lab.submit(cpu=1, queue="off_peak"),
        await lab.submit(cpu=1, delay_tolerance="12h"),
    ]
    short = await lab.submit(cpu=1, delay_tolerance="5h")
    await settle(lab)
    assert await lab.status(short) == "running"
    for ref in refs[:2]:
        await node.report(ref)
        await settle(lab)
        assert [await lab.status(task) for task in postponed] == ["waiting", "waiting"]
    await node.report(refs[2])
    await settle(lab)
    assert [await lab.status(task) for task in postponed] == ["running", "running"]


async def test_a_task_with_a_long_tolerance_competes_once_it_has_six_hours_of_slack(lab):
    node = await lab.node(cpu=20)
    await fill(lab, node, 17)
    task = await lab.submit(cpu=1, delay_tolerance="8h")
    await later(lab, node, 2 * 3600 - 1)
    await settle(lab)
    assert await lab.status(task) == "waiting"
    await later(lab, node, 1)
    await settle(lab)
    assert await lab.status(task) == "running"


async def test_an_urgent_task_is_not_postponed_however_long_its_tolerance(lab):
    node = await lab.node(cpu=10)
    await fill(lab, node, 9)
    task = await lab.submit(cpu=1, queue="urgent", delay_tolerance="12h")
    await settle(lab)
    assert await lab.status(task) == "running"


async def test_the_last_slots_are_kept_for_urgent_tasks_of_entitled_tenants(lab):
    node = await lab.node(cpu=20)
    await fill(lab, node, 17)
    # The tenant with postponed tasks does not compete, so the other one is entitled to all.
    await lab.submit(cpu=1, queue="off_peak", by=lab.stranger)
    others = [await lab.submit(cpu=1) for _ in range(3)]
    await settle(lab)
    assert [await lab.status(task) for task in others] == ["running", "running", "waiting"]
    urgent = await lab.submit(cpu=1, queue="urgent")
    await settle(lab)
    assert await lab.status(urgent) == "running"
    assert await lab.status(others[2]) == "waiting"


async def test_a_tenant_beyond_its_fair_share_may_not_use_the_headroom(lab):
    node = await lab.node(cpu=20)
    await fill(lab, node, 19)
    urgent = await lab.submit(cpu=1, queue="urgent")
    # It competes, and waits for more than is free.
    await lab.submit(cpu=15, by=lab.stranger)
    await settle(lab)
    assert await lab.status(urgent) == "waiting"
    theirs = await lab.submit(cpu=1, queue="urgent", by=lab.stranger)
    await settle(lab)
    assert await lab.status(theirs) == "running"


async def test_a_task_that_is_out_of_slack_may_use_the_headroom(lab):
    node = await lab.node(cpu=20)
    await fill(lab, node, 19)
    task = await lab.submit(cpu=1, delay_tolerance="5m")
    await settle(lab)
    assert await lab.status(task) == "waiting"
    await later(lab, node, 240)
    await settle(lab)
    assert await lab.status(task) == "running"


async def test_a_task_as_large_as_the_only_node_can_run_at_peak(lab):
    node = await lab.node(cpu=20)
    refs = await fill(lab, node, 20)
    large = await lab.submit(cpu=20, delay_tolerance="1h")
    for ref in refs:
        await settle(lab)
        assert await lab.status(large) == "waiting"
        await node.report(ref)
    await settle(lab)
    await later(lab, node, 90)
    await lab.components.unplaceable.tick()
    assert await lab.status(large) == "running"


async def test_small_fleets_keep_no_headroom(lab):
    node = await lab.node(cpu=9.5)
    await fill(lab, node, 9)
    task = await lab.submit(cpu=0.5)
    await settle(lab)
    assert await lab.status(task) == "running"


async def test_a_new_leader_knows_since_when_it_is_peak_time(lab):
    node = await lab.node(cpu=20)
    refs = await fill(lab, node, 16)
    began = await stored_peak(lab)
    assert began.since == {"cpu_milli": lab.clock.now}
    await node.report(refs[0])
    await later(lab, node, 2)
    await lab.components.cluster_manager.stop()
    other = lab.server()
    await other.cluster_manager.tick()
    quiet = await lab.submit(cpu=1, queue="off_peak")
    for _ in range(2):
        await other.resource_manager.tick()
    assert await lab.status(quiet) == "waiting"
    assert await stored_peak(lab) == began


async def test_the_end_of_peak_time_is_stored_and_changes_at_most_once_a_second(lab):
    node = await lab.node(cpu=10)
    refs = await fill(lab, node, 8)
    began = await stored_peak(lab)
    for ref in refs[:2]:
        await node.report(ref)
    await lab.submit(cpu=1)
    await settle(lab)
    assert await stored_peak(lab) == began
    await later(lab, node, 1)
    await settle(lab)
    assert not (await stored_peak(lab)).is_peak
