from datetime import UTC, datetime

import pytest

from duly import clock as machine_clock
from duly.model.task import Outcome
from duly.server.lifecycle.expiry_grace import ExpiryGrace
from duly.store.fleet.servers import Term
from tests.server.lab import seconds

TTL = seconds(15)
STARTED = datetime(2026, 11, 15, 8, tzinfo=UTC)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Watch:
    """Asks a Patience at moments that a test chooses."""

    def __init__(self, monkeypatch):
        self.grace = ExpiryGrace(TTL)
        self.monotonic = 100.0
        self.at = NOON
        monkeypatch.setattr(machine_clock, "monotonic", lambda: self.monotonic)

    def look(self, after=0.0, term=1, led_since=7.0, started_at=STARTED, step=0.0):
        """Return whether grace is over after `after` seconds, and a step of PostgreSQL's clock."""
        self.monotonic += after
        self.at += seconds(after + step)
        return self.grace.is_over(Term(term, 0), led_since, started_at, self.at)


@pytest.fixture
def watch(monkeypatch):
    return Watch(monkeypatch)


def test_a_new_leader_waits_one_ttl_before_expiring_nodes(watch):
    assert [watch.look(), watch.look(14.9), watch.look(0.1)] == [False, False, True]


def test_grace_that_is_over_stays_over(watch):
    watch.look()
    assert [watch.look(15), *(watch.look(1) for _ in range(5))] == [True] * 6


def test_another_term_begins_a_new_grace(watch):
    watch.look()
    assert watch.look(15)
    assert [watch.look(1, term=2), watch.look(14, term=2), watch.look(1, term=2)] == [
        False,
        False,
        True,
    ]


def test_a_time_without_term_renewals_begins_a_new_grace(watch):
    watch.look()
    assert watch.look(15)
    assert not watch.look(1, led_since=120.0)
    assert watch.look(15, led_since=120.0)


def test_a_restart_of_postgresql_begins_a_new_grace(watch):
    watch.look()
    assert watch.look(15)
    anew = NOON + seconds(15)
    assert not watch.look(1, started_at=anew)
    assert not watch.look(14, started_at=anew)
    assert watch.look(1, started_at=anew)


@pytest.mark.parametrize("step", [3600, 1.5, -1.5, -3600])
def test_a_clock_step_begins_a_new_grace(watch, step):
    watch.look()
    assert watch.look(15)
    assert not watch.look(1, step=step)
    assert watch.look(15)


def test_a_ttl_without_a_check_begins_a_new_grace(watch):
    watch.look()
    assert watch.look(15)
    assert [watch.look(15.1), watch.look(14), watch.look(1)] == [False, False, True]


def test_clock_jitter_begins_no_new_grace(watch):
    watch.look()
    assert watch.look(15)
    assert all(watch.look(1, step=step) for step in (0.3, -0.3, 0.9, -0.9))


async def test_a_silent_node_is_lost_and_its_tasks_go_to_another(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.silence(TTL)
    assert await lab.status(ref.task) == "waiting"
    assert await lab.attempts(ref.task) == [(1, "lost")]
    assert await lab.tally(ref.task) == (0, 1)
    other = await lab.node()
    assert (await lab.start(other, ref.task)).attempt == 2


async def test_a_node_that_renews_keeps_its_tasks(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.sweep()
    for _ in range(10):
        await lab.clock.move(seconds(10))
        await node.heartbeat(ref)
        await lab.sweep()
    assert await lab.status(ref.task) == "running"


async def test_a_lost_task_keeps_its_place_in_the_queue(lab):
    node = await lab.node()
    ref = await lab.run(node)
    start_by = (await lab.live(ref.task))["start_by"]
    await lab.silence(TTL)
    assert (await lab.live(ref.task))["start_by"] == start_by


async def test_a_leader_that_has_just_begun_expires_no_node(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.clock.move(TTL * 4)
    successor = lab.server()
    await successor.cluster_manager.tick()
    await successor.queue_manager.tick()
    assert await lab.status(ref.task) == "running"
    assert await node.heartbeat(ref) == []
    await lab.clock.move(TTL - seconds(1))
    await successor.cluster_manager.tick()
    await successor.queue_manager.tick()
    assert await lab.status(ref.task) == "running"


async def test_orphans_of_one_node_do_not_expire_another_early(lab):
    silent, back = await lab.node(cpu=1), await lab.node(cpu=1)
    tasks = [await lab.submit(cpu=1) for _ in range(2)]
    await lab.schedule()
    (held,), (left,) = await silent.starts(), await back.starts()
    assert {held.task, left.task} == set(tasks)
    await lab.clock.move(TTL * 4)
    successor = lab.server()
    await successor.cluster_manager.tick()
    await lab.rejoin(back, cpu=1)
    await successor.queue_manager.tick()
    assert await lab.attempts(left.task) == [(1, "lost")]
    assert await lab.status(held.task) == "running"


async def test_a_leader_that_lost_the_database_expires_no_node_at_once(lab):
    # Agents renew through the servers: while these had no database, no node could.
    node = await lab.node()
    ref = await lab.run(node)
    await lab.sweep()
    for _ in range(15):
        await lab.clock.move(seconds(1))
        await node.heartbeat(ref)
        await lab.sweep()
    await lab.clock.move(TTL * 2)  # nobody reached the database meanwhile
    await lab.sweep()
    assert await lab.status(ref.task) == "running"
    assert await node.heartbeat(ref) == []


async def test_a_leader_that_missed_renewals_for_less_than_a_ttl_expires_no_node_at_once(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.sweep()
    for _ in range(15):
        await lab.clock.move(seconds(1))
        await node.heartbeat(ref)
        await lab.sweep()
    await lab.silence(TTL - seconds(8))
    await lab.clock.move(seconds(9))
    await lab.sweep()
    assert await lab.status(ref.task) == "running"
    assert await node.heartbeat(ref) == []


@pytest.mark.parametrize(("ago", "is_found"), [("9 min", True), ("11 min", False)])
async def test_recent_orphans_are_found_while_the_full_sweep_is_throttled(lab, ago, is_found):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.rejoin(node)
    await lab.conn.execute(
        "update incarnations set ended_at = duly.now() - $1::text::interval where id = $2",
        ago,
        node.incarnation,
    )
    sweep = lab.components.queue_manager._sweep
    sweep._next_at = float("inf")
    await lab.sweep()
    assert (await lab.attempts(ref.task) == [(1, "lost")]) is is_found
    sweep.make_due()
    await lab.sweep()
    assert await lab.attempts(ref.task) == [(1, "lost")]


async def test_joining_again_releases_the_attempts_of_the_former_incarnation(lab):
    node = await lab.node()
    refs = [await lab.run(node) for _ in range(3)]
    again = await lab.rejoin(node)
    assert again.id == node.id
    assert again.incarnation != node.incarnation
    await lab.sweep()
    for ref in refs:
        assert await lab.attempts(ref.task) == [(1, "lost")]
    await lab.schedule()
    assert {ref.task for ref in await again.starts()} == {ref.task for ref in refs}


async def test_a_node_that_leaves_returns_attempts_that_it_never_started(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.components.cluster_manager.leave(node.id, node.incarnation)
    await lab.sweep()
    assert await lab.status(ref.task) == "waiting"
    assert await lab.attempts(ref.task) == [(1, "expired")]
    assert await lab.tally(ref.task) == (0, 0)


async def test_a_node_that_hands_back_and_leaves_costs_nothing(lab):
    node = await lab.node()
    ref = await lab.run(node)
    assert await node.report(ref, Outcome.EXPIRED)
    await lab.components.cluster_manager.leave(node.id, node.incarnation)
    await lab.sweep()
    assert await lab.attempts(ref.task) == [(1, "expired")]
    assert await lab.tally(ref.task) == (0, 0)


async def test_leaving_twice_or_on_behalf_of_another_does_nothing(lab):
    node, other = await lab.node(), await lab.node()
    manager = lab.components.cluster_manager
    await manager.leave(other.id, node.incarnation)
    assert await node.heartbeat() == []
    await manager.leave(node.id, node.incarnation)
    await manager.leave(node.id, node.incarnation)


async def test_a_follower_ends_no_attempts(lab):
    follower = lab.server()
    await follower.cluster_manager.tick()
    node = await lab.node()
    ref = await lab.run(node)
    await lab.rejoin(node)
    assert await follower.queue_manager.tick() is False
    assert await lab.status(ref.task) == "running"
