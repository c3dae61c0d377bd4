import asyncio

import pytest

from duly import wire
from duly.errors import Fenced
from duly.model.task import Outcome
from duly.server.delivery import polls
from duly.server.delivery.preparations import MAX_EXTENSION
from tests.server.lab import Node, seconds


async def test_a_lost_response_is_repeated(lab):
    node = await lab.node()
    task = await lab.submit()
    await lab.schedule()
    first = await node.poll()
    assert [start.ref.task for start in first.start] == [task]
    assert await node.poll() == first


async def test_an_attempt_that_is_held_is_not_delivered_again(lab):
    node = await lab.node()
    ref = await lab.run(node)
    other = await lab.submit()
    assert await node.starts(ref) == []
    await lab.schedule()
    assert [one.task for one in await node.starts(ref)] == [other]


async def test_polls_are_answered_at_once_when_the_server_stops(lab):
    node = await lab.node()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(wait=20))
        while not lab.components.polls._wakeups._listeners:
            await asyncio.sleep(0)
        lab.components.polls.close()
    assert poll.result() == wire.PollResponse(start=[], stop=[])
    task = await lab.submit()
    await lab.schedule()
    async with asyncio.timeout(5):
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]
        assert (await node.poll(wait=20)).stop == []


async def test_a_waiting_poll_is_woken_by_a_lease(lab, monkeypatch):
    monkeypatch.setattr(polls, "RECHECK_INTERVAL", seconds(60))
    node = await lab.node()
    task = await lab.submit()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(wait=20))
        while not lab.components.polls._wakeups._listeners:
            await asyncio.sleep(0)
        await lab.schedule()
    assert [start.ref.task for start in poll.result().start] == [task]


async def test_an_attempt_that_an_agent_should_not_hold_is_lost(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.report(ref, Outcome.EXPIRED)
    unknown = wire.AttemptRef(1, 1, 1)
    assert await node.stops(ref, unknown) == [
        wire.Stop(ref=ref, why="lost"),
        wire.Stop(ref=unknown, why="lost"),
    ]


async def test_a_stop_is_returned_once_by_polls_and_every_time_by_heartbeats(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.components.canceller.cancel(lab.client, [ref.task])
    stop = wire.Stop(ref=ref, why="cancelled")
    assert await node.stops(ref) == [stop]
    assert await node.stops(ref) == []
    assert await node.heartbeat(ref) == [stop]
    assert await node.heartbeat(ref) == [stop]


async def test_a_stop_of_an_attempt_that_is_not_held_is_repeated_until_it_is_reported(lab):
    node = await lab.node()
    task = await lab.submit()
    await lab.schedule()
    await lab.components.canceller.cancel(lab.client, [task])
    (stop,) = await node.stops()
    assert await node.heartbeat() == [stop]
    assert await node.report(stop.ref, Outcome.CANCELLED)
    assert await node.heartbeat() == []


async def test_an_attempt_far_beyond_its_cap_is_stopped(lab):
    node = await lab.node()
    ref = await lab.run(node, execution_cap="60s")
    # Cap, grace, and five seconds for the agent to kill it by itself.
    await lab.clock.move(seconds(60 + 10 + 4))
    assert await node.heartbeat(ref) == []
    await lab.clock.move(seconds(1))
    assert await node.stops(ref) == [wire.Stop(ref=ref, why="capped")]
    assert await node.heartbeat(ref) == [wire.Stop(ref=ref, why="capped")]


async def test_the_cap_counts_from_the_start_of_an_attempt(lab):
    """However long its node reports that it fetches the bundle and the inputs."""
    node, other = await lab.node(), await lab.node(cpu=0)
    ref = await lab.run(node, execution_cap="60s")
    plain = await lab.run(node, execution_cap="60s")
    stale = wire.AttemptRef(plain.task, plain.attempt, plain.token + 1)
    for _ in range(20):
        await lab.clock.move(seconds(45))
        await lab.components.preparations.extend_deadlines(node.id, [ref, stale])
        await lab.components.preparations.extend_deadlines(other.id, [plain])
        assert ref not in [stop.ref for stop in await node.heartbeat(ref)]
    assert await node.heartbeat(ref, plain) == [wire.Stop(ref=plain, why="capped")]
    assert await node.report(plain, Outcome.CAPPED)
    await lab.clock.move(seconds(60 + 10 + 4))
    assert await node.heartbeat(ref) == []
    await lab.clock.move(seconds(60))
    assert await node.heartbeat(ref) == [wire.Stop(ref=ref, why="capped")]


async def test_an_attempt_that_is_prepared_for_ever_is_stopped(lab):
    node = await lab.node()
    ref = await lab.run(node, execution_cap="60s")
    began = lab.clock.now
    while await node.heartbeat(ref) == []:
        await lab.components.preparations.extend_deadlines(node.id, [ref])
        await lab.clock.move(seconds(30))
    assert lab.clock.now - began <= MAX_EXTENSION + seconds(60 + 10 + 5 + 30)


async def test_an_overdue_attempt_keeps_its_row_until_it_is_reported(lab):
    node = await lab.node()
    ref = await lab.run(node, execution_cap="60s")
    await lab.clock.move(seconds(600))
    await node.heartbeat(ref)
    await lab.sweep()
    assert await lab.status(ref.task) == "running"
    assert await node.report(ref, Outcome.CAPPED)
    assert await lab.attempts(ref.task) == [(1, "capped")]


async def test_an_incarnation_that_was_replaced_is_fenced(lab):
    node = await lab.node()
    await lab.run(node)
    await lab.rejoin(node)
    with pytest.raises(Fenced):
        await node.poll()
    with pytest.raises(Fenced):
        await node.heartbeat()


async def test_an_incarnation_without_heartbeats_for_too_long_is_fenced(lab):
    node = await lab.node()
    await lab.silence(lab.settings.leases.ttl)
    with pytest.raises(Fenced):
        await node.poll()
    with pytest.raises(Fenced):
        await node.heartbeat()


async def test_an_expired_lease_may_be_renewed_until_it_is_swept(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await lab.clock.move(lab.settings.leases.ttl * 10)
    assert await node.heartbeat(ref) == []
    await lab.sweep()
    assert await lab.status(ref.task) == "running"


async def test_a_node_cannot_poll_for_the_incarnation_of_another(lab):
    node, other = await lab.node(), await lab.node()
    await lab.submit_all([lab.spec() for _ in range(4)])
    await lab.schedule()
    mixed = Node(
        lab.components,
        other.name,
        other.key,
        wire.JoinResponse(
            node=other.id, incarnation=node.incarnation, lease_ttl=1, heartbeat_interval=1
        ),
    )
    with pytest.raises(Fenced):
        await mixed.poll()
    with pytest.raises(Fenced):
        await mixed.heartbeat()


async def test_a_poll_returns_empty_after_its_wait(lab):
    node = await lab.node()
    assert await node.poll(wait=0) == wire.PollResponse(start=[], stop=[])
