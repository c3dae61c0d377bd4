"""The queue of a task decides when it is placed."""

from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from duly.config import SchedulingSettings, Settings
from duly.model.queues.queue import OpeningHours, Queue, QueueDefinition
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from tests.server.books import amounts_told, recount
from tests.server.lab import between_placing_and_leasing, seconds


@pytest.fixture
def settings():
    """A small window, and no headroom, so that tasks of all queues may fill the fleet."""
    return Settings(scheduling=SchedulingSettings(window=3, urgent_headroom=0))


async def later(lab, node, ref, by):
    """Move the clock while a node runs an attempt."""
    await lab.clock.move(seconds(by))
    await node.heartbeat(ref)
    await lab.components.cluster_manager.tick()


async def settle(lab):
    """Schedule until a round has nothing more to do."""
    await lab.components.cluster_manager.tick()
    while await lab.components.resource_manager.tick():
        pass


async def test_an_urgent_task_overtakes_those_of_its_tenant_and_of_others(lab):
    node = await lab.node(cpu=1)
    ref = await lab.run(node, cpu=1)
    late = [await lab.submit(cpu=1, delay_tolerance=1) for _ in range(5)]
    late += [await lab.submit(cpu=1, delay_tolerance=1, by=lab.stranger) for _ in range(5)]
    await later(lab, node, ref, 10)
    urgent = await lab.submit(cpu=1, queue="urgent", delay_tolerance="1h")
    theirs = await lab.submit(cpu=1, queue="urgent", delay_tolerance="2h", by=lab.stranger)
    await node.report(ref)
    ref = await lab.start(node, urgent)
    await node.report(ref)
    ref = await lab.start(node, theirs)
    await node.report(ref)
    await lab.schedule()
    assert await lab.run_on(node) == {late[0]}


async def test_capacity_is_held_at_once_for_an_urgent_task_that_fits_nowhere(lab):
    node = await lab.node(cpu=2)
    first, second = await lab.run(node, cpu=1), await lab.run(node, cpu=1)
    large = await lab.submit(cpu=2, queue="urgent", delay_tolerance="1h")
    small = await lab.submit(cpu=1, delay_tolerance=1)
    await node.report(first)
    await lab.schedule()
    assert await lab.status(small) == "waiting"
    await node.report(second)
    await lab.schedule()
    assert await lab.run_on(node) == {large}


async def test_off_peak_work_waits_at_peak_and_begins_below_it(lab):
    node = await lab.node(cpu=10)
    refs = [await lab.run(node, cpu=1) for _ in range(8)]
    quiet = await lab.submit(cpu=1, queue="off_peak")
    await lab.schedule()
    assert await lab.status(quiet) == "waiting"
    assert await lab.components.resource_manager.tick() is False
    # Tasks of other queues start as usual.
    assert await lab.run(node, cpu=1)
    for ref in refs[:2]:
        await node.report(ref)
    await lab.schedule()
    assert await lab.status(quiet) == "running"


async def test_no_more_off_peak_tasks_start_than_fit_below_the_peak(lab):
    node = await lab.node(cpu=10)
    await lab.submit_all([lab.spec(cpu=1, queue="off_peak") for _ in range(10)])
    await settle(lab)
    assert len(await lab.run_on(node)) == 8


async def test_off_peak_work_begins_at_peak_once_its_slack_has_run_out(lab):
    node = await lab.node(cpu=10)
    ref = await lab.run(node, cpu=9, execution_cap="5h")
    first = await lab.submit(cpu=1, queue="off_peak", delay_tolerance="10m")
    second = await lab.submit(cpu=1, queue="off_peak", delay_tolerance="20m")
    for _ in range(2):
        await later(lab, node, ref, 269)
        await settle(lab)
        assert await lab.run_on(node) == {ref.task}
    await later(lab, node, ref, 2)
    await settle(lab)
    assert await lab.run_on(node) == {ref.task, first}
    assert await lab.status(second) == "waiting"


async def test_an_off_peak_subqueue_with_unknown_start_by_starts_nothing_at_peak(lab):
    node = await lab.node(cpu=10)
    await lab.run(node, cpu=9)
    quiet = await lab.submit(cpu=1, queue="off_peak")
    key = lab.client.tenant_id, (await lab.live(quiet))["shape_id"]
    prioritizer = lab.components.resource_manager._prioritizer
    prioritizer.mark_ready([(key, UNKNOWN_START_BY)])
    assert await lab.components.resource_manager.tick() is False
    assert await lab.status(quiet) == "waiting"
    # Its start_by is known now, and it is not read again before that.
    start_bys = dict(prioritizer._ready_queues.items())
    assert start_bys[key] == (await lab.live(quiet))["start_by"]


async def test_no_capacity_is_held_for_a_large_off_peak_task_before_it_must_start(lab):
    node = await lab.node(cpu=2)
    ref = await lab.run(node, cpu=1)
    large = await lab.submit(cpu=2, queue="off_peak", delay_tolerance="10m")
    await later(lab, node, ref, 400)
    small = await lab.run(node, cpu=1)
    await node.report(small)
    await later(lab, node, ref, 141)
    small = await lab.submit(cpu=1, delay_tolerance="1h")
    await lab.schedule()
    assert await lab.run_on(node) == {ref.task}
    await node.report(ref)
    assert await lab.start(node, large)


async def test_an_occurrence_starts_before_a_delayable_task(lab):
    node = await lab.node(cpu=1)
    ref = await lab.run(node, cpu=1)
    plain = await lab.submit(cpu=1, delay_tolerance="5m")
    spec = replace(lab.spec(cpu=1, delay_tolerance="10m"), queue=Queue.PERIODIC)
    (periodic,) = await lab.submit_all([spec])
    await node.report(ref)
    ref = await lab.start(node, periodic.id)
    again = await lab.submit_all([spec])
    # The slack of the plain task has run out: now it starts first.
    await later(lab, node, ref, 241)
    await node.report(ref)
    await lab.start(node, plain)
    assert await lab.status(again[0].id) == "waiting"


async def test_the_urgent_task_of_a_tenant_near_its_limit_starts_first(lab):
    await lab.conn.execute(
        "insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,"
        " max_running) values ('one', '5 m', '1 h', '1 h', 1, 1) on conflict do nothing"
    )
    await lab.conn.execute("update tenants set plan = 'one' where name = 'acme'")
    node = await lab.node(cpu=64)
    ref = await lab.run(node, by=lab.stranger)
    await settle(lab)
    many = [lab.spec(cpu=1 + place / 100, delay_tolerance=place) for place in range(12)]
    await lab.submit_all(many, by=lab.stranger)
    await settle(lab)
    urgent = await lab.submit(cpu=1, queue="urgent", by=lab.stranger)
    await settle(lab)
    assert await lab.run_on(node) == {ref.task}
    await node.report(ref)
    await settle(lab)
    assert await lab.run_on(node) == {urgent}


def expected_key(task):
    """Return the expected sort key of a task, None if it must wait; independent of the product."""
    queue, left = task["queue"], (task["start_by"] - task["now"]).total_seconds()
    if queue == "off_peak" and left > 60:
        return None
    turn = 0 if queue == "urgent" else 1 if left <= 60 else 2 if queue == "periodic" else 3
    return turn, task["start_by"], -task["priority"], task["id"]


@pytest.mark.parametrize("seed", range(2))
async def test_tasks_of_all_queues_start_in_order(lab, seed):
    dice = Random(seed)
    node = await lab.node(cpu=5)
    held = [await lab.run(node, cpu=1, execution_cap="20h") for _ in range(4)]
    waiting = (
        "select l.*, s.queue, duly.now() as now from live l join shapes s on s.id = l.shape_id"
    )
    ref, started = None, 0
    for _ in range(40):
        if dice.random() < 0.6:
            spec = lab.spec(
                cpu=dice.choice([0.9, 1]),
                delay_tolerance=dice.randrange(10, 400),
                priority=dice.randrange(3),
                execution_cap="1h",
            )
            queue = dice.choice([None, Queue.URGENT, Queue.PERIODIC, Queue.OFF_PEAK])
            await lab.submit_all([replace(spec, queue=queue)])
        await lab.clock.move(seconds(dice.randrange(20)))
        for attempt in (*held, *([ref] if ref else [])):
            await node.heartbeat(attempt)
        if ref is not None and dice.random() < 0.6:
            await node.report(ref)
            ref = None
        rows = await lab.conn.fetch(f"{waiting} where l.status = 'waiting'")
        order = sorted((key, row["id"]) for row in rows if (key := expected_key(row)))
        await settle(lab)
        begun = await node.starts(*held, *([ref] if ref else []))
        expected = [order[0][1]] if ref is None and order else []
        assert [attempt.task for attempt in begun] == expected
        if begun:
            ref, started = begun[0], started + 1
    assert started > 8


async def test_tasks_that_differ_only_in_their_queue_are_in_different_subqueues(lab):
    spec = lab.spec()
    both = [spec, replace(spec, queue=Queue.URGENT)]
    ids = (await lab.components.submitter.submit_batch(lab.client, both)).ids
    assert len({(await lab.live(task))["shape_id"] for task in ids}) == 2


async def test_the_queue_is_kept_and_can_be_changed(lab):
    task = await lab.submit(queue="off_peak", delay_tolerance="2h")
    await lab.components.updater.update(lab.client, task, {"name": "x"})
    assert await queue_and_tolerance(lab, task) == ("off_peak", seconds(7200))
    await lab.components.updater.update(lab.client, task, {"queue": "urgent"})
    assert await queue_and_tolerance(lab, task) == ("urgent", seconds(300))
    await lab.components.updater.update(lab.client, task, {"queue": None})
    assert await queue_and_tolerance(lab, task) == (None, seconds(300))
    await lab.components.updater.update(lab.client, task, {"queue": "off_peak"})
    assert await queue_and_tolerance(lab, task) == ("off_peak", seconds(12 * 3600))


async def test_a_replay_asks_for_the_same_queue_but_is_no_occurrence(lab):
    node = await lab.node()
    for queue, expected in ((Queue.OFF_PEAK, "off_peak"), (Queue.PERIODIC, None)):
        (old,) = await lab.submit_all([replace(lab.spec(), queue=queue)])
        await node.report(await lab.start(node, old.id))
        again = await lab.components.replayer.replay(lab.client, old.id)
        assert (await queue_and_tolerance(lab, again))[0] == expected
        await node.report(await lab.start(node, again))


async def test_usage_is_recorded_by_the_requested_queue(lab):
    node = await lab.node()
    for queue in (None, "urgent", "off_peak"):
        ref = await lab.run(node, queue=queue, delay_tolerance="2h")
        await node.report(ref, ran=1)
    recorded = await amounts_told(lab.conn, ("urgency",))
    assert {key[0]: amounts.tasks for key, amounts in recorded.items()} == {
        "patient": 1,
        "urgent": 1,
        "off_peak": 1,
    }
    assert await amounts_told(lab.conn) == await recount(lab.conn)


async def queue_and_tolerance(lab, task):
    """Return the queue of a task by its shape, and its delay tolerance."""
    row = await lab.conn.fetchrow(
        "select s.queue, l.delay_tolerance from live l join shapes s on s.id = l.shape_id"
        " where l.id = $1",
        task,
    )
    return row["queue"], row["delay_tolerance"]


async def own_queue(lab, name="bulk", **bounds):
    """Create a queue; return a credential that knows it."""
    queue = QueueDefinition(name=name, level=bounds.pop("level", 50), **bounds)
    await lab.components.queues.create(lab.client, queue)
    known = {name: queue.off_peak}
    lab.client = replace(lab.client, plan=replace(lab.client.plan, known_queues=known))


async def test_a_paused_queue_starts_nothing_even_out_of_slack_and_keeps_nothing_from_others(lab):
    node = await lab.node(cpu=4)
    await own_queue(lab, level=1)
    await lab.components.queues.pause(lab.client, "bulk")
    # More subqueues than a window has tasks, and all of them would come first.
    needs = [number / 10 for number in range(1, 7)]
    paused = [await lab.submit(cpu=cpu, queue="bulk", delay_tolerance=1) for cpu in needs]
    others = [await lab.submit(cpu=1) for _ in range(3)]
    await settle(lab)
    assert await lab.run_on(node) == set(others)
    assert await lab.components.resource_manager.tick() is False
    await lab.components.queues.resume(lab.client, "bulk")
    await settle(lab)
    assert {*others, paused[0]} < await lab.run_on(node) <= {*others, *paused}


async def test_a_pause_that_is_acknowledged_undoes_a_placement_that_is_not_leased(lab):
    node = await lab.node()
    task = await lab.submit(cpu=1)
    pause = lab.components.queues.pause(lab.client, "delayable")
    await between_placing_and_leasing(lab, pause)
    await settle(lab)
    assert (await lab.run_on(node), await lab.status(task)) == (set(), "waiting")


async def test_a_queue_with_hours_starts_tasks_only_then(lab):
    await lab.node()
    opens, closes = lab.clock.now + seconds(8), lab.clock.now - timedelta(hours=1)
    await own_queue(lab, hours=OpeningHours(opens.time(), closes.time()))
    task = await lab.submit(cpu=1, queue="bulk", delay_tolerance=0)
    await settle(lab)
    assert await lab.status(task) == "waiting"
    await lab.clock.move(seconds(8))
    await settle(lab)
    assert await lab.status(task) == "running"


async def test_a_queue_holds_no_more_than_its_share_over_rounds_and_shapes(lab):
    node = await lab.node(cpu=10)
    await own_queue(lab, level=1, max_share=0.3)
    first = await lab.run(node, cpu=1, queue="bulk")
    bulk = [lab.spec(cpu=cpu, queue="bulk") for cpu in (0.5, 1, 0.5, 1, 1, 2)]
    await lab.submit_all(bulk)
    await settle(lab)
    assert await held_cpu(lab) == 3000
    others = [await lab.submit(cpu=1) for _ in range(7)]
    await settle(lab)
    assert set(others) <= await lab.run_on(node)
    await node.report(first)
    await settle(lab)
    assert await held_cpu(lab) == 3000


async def held_cpu(lab):
    """Return what running tasks of administrators' queues hold."""
    return await lab.conn.fetchval(
        "select coalesce(sum((s.needs ->> 'cpu_milli')::int), 0) from live l join shapes s "
        "on s.id = l.shape_id where l.status = 'running' and s.queue = 'bulk'"
    )


async def test_a_lease_that_was_delayed_cannot_exceed_the_share_of_a_queue(lab):
    node = await lab.node(cpu=10)
    await own_queue(lab, max_share=0.1)
    await lab.submit(cpu=1, queue="bulk")
    manager = lab.components.resource_manager
    advance = lab.conn.execute("update quotas set given = given + 1")
    await between_placing_and_leasing(lab, advance)
    assert await lab.run_on(node) == set()
    assert await manager.tick() is False
    assert len(await lab.run_on(node)) == 1


async def test_a_tenant_whose_queue_is_paused_does_not_compete_for_shares(lab):
    node = await lab.node(cpu=8)
    await own_queue(lab, level=1)
    await lab.components.queues.pause(lab.client, "bulk")
    await lab.submit_all([lab.spec(cpu=1, queue="bulk") for _ in range(8)], by=lab.stranger)
    mine = [await lab.submit(cpu=1) for _ in range(8)]
    await settle(lab)
    assert await lab.run_on(node) == set(mine)
