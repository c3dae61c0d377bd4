"""Two servers on one database: hints carry changes from one to the other at once.

Services and rechecks have intervals of a minute here, so that only a hint explains what happens
within seconds.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from duly import wire
from duly.config import SchedulingSettings, Settings
from duly.model.resources import Resources
from duly.server.cluster.hints import EVERYTHING, Hint
from duly.server.components import Components
from duly.server.delivery import polls
from duly.server.delivery.mailboxes import Mailbox
from tests.server.lab import Lab, Node

SOON = 10.0
RARELY = timedelta(minutes=1)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(polls, "RECHECK_INTERVAL", RARELY)
    return Settings(scheduling=SchedulingSettings(interval=RARELY))


@pytest.fixture
async def other(lab: Lab) -> Components:
    """A second server, which does not lead."""
    other = lab.server()
    await other.cluster_manager.tick()
    assert (lab.components.cluster_manager.term is None, other.cluster_manager.term) == (
        False,
        None,
    )
    return other


@asynccontextmanager
async def running(*servers: Components) -> AsyncIterator[None]:
    """Run every service but the cluster managers: with the clock stopped, terms do not expire."""
    for components in servers:
        await components.server_bus.tick()
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        loops = [
            group.create_task(service.run())
            for components in servers
            for service in components.services
            if service not in (components.cluster_manager, components.retention)
        ]
        await asyncio.sleep(0)  # Each service must have started, so that it also stops.
        yield
        for loop in loops:
            loop.cancel()


def at(node: Node, components: Components) -> Node:
    """Make a node use another server."""
    node.components = components
    return node


def count_reads(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[int], Counter[int]]:
    """Count by incarnation how many reads of polls begin, and how many end."""
    begun, ended = Counter[int](), Counter[int]()
    read_orders = polls.Polls._read_orders

    async def counted(
        self: polls.Polls, node_id: int, poll: wire.PollRequest, mailbox: Mailbox
    ) -> wire.PollResponse:
        begun[poll.incarnation] += 1
        orders = await read_orders(self, node_id, poll, mailbox)
        ended[poll.incarnation] += 1
        return orders

    monkeypatch.setattr(polls.Polls, "_read_orders", counted)
    return begun, ended


async def test_a_task_submitted_to_a_follower_is_started_at_once(
    lab: Lab, other: Components
) -> None:
    node = at(await lab.node(), other)
    async with running(lab.components, other):
        poll = asyncio.ensure_future(node.poll(wait=25))
        admitted = await other.submitter.submit(lab.client, lab.spec())
        orders = await poll
    assert [start.ref.task for start in orders.start] == [admitted.id]


async def test_an_end_on_one_server_makes_room_and_wakes_listeners_on_another(
    lab: Lab, other: Components
) -> None:
    node = await lab.node(cpu=1)
    first = await lab.run(node, cpu=1)
    at(node, other)
    async with running(lab.components, other):
        second = await lab.components.submitter.submit(lab.client, lab.spec(cpu=1))
        with lab.components.wakeups.listen(first.task) as wakeups:
            assert await node.report(first)
            await wakeups.wait(SOON * 2)
        orders = await node.poll(wait=25)
    assert [start.ref.task for start in orders.start] == [second.id]


async def test_the_leader_learns_of_an_earlier_due_time(lab: Lab, other: Components) -> None:
    node = await lab.node()
    soon = timedelta(seconds=1)
    async with running(lab.components, other):
        spec = lab.spec(run_at=lab.clock.now + soon)
        admitted = await other.submitter.submit(lab.client, spec)
        await lab.clock.move(soon)
        orders = await node.poll(wait=25)
    assert [start.ref.task for start in orders.start] == [admitted.id]


async def test_a_cancel_on_one_server_reaches_a_node_that_polls_another(
    lab: Lab, other: Components
) -> None:
    node = at(await lab.node(), lab.components)
    ref = await lab.run(node)
    async with running(lab.components, other):
        poll = asyncio.ensure_future(node.poll(ref, wait=25))
        assert await other.canceller.cancel(lab.client, [ref.task]) == {ref.task: False}
        orders = await poll
    assert [(stop.ref, stop.why) for stop in orders.stop] == [(ref, "cancelled")]


@pytest.mark.parametrize("where", [0, 1])
async def test_a_cancel_wakes_the_poll_of_the_node_that_runs_the_task_and_no_other(
    lab: Lab, other: Components, monkeypatch: pytest.MonkeyPatch, where: int
) -> None:
    servers = [lab.components, other]
    runner = await lab.node()
    ref = await lab.run(runner)
    at(runner, servers[where])
    idle = [at(await lab.node(cpu=0), components) for components in servers * 2]
    begun, ended = count_reads(monkeypatch)
    async with running(*servers):
        waiting = [asyncio.ensure_future(node.poll(wait=25)) for node in idle]
        stopped = asyncio.ensure_future(runner.poll(ref, wait=25))
        while len(ended) < len(idle) + 1:
            await asyncio.sleep(0)
        begun.clear()
        assert await lab.components.canceller.cancel(lab.client, [ref.task]) == {ref.task: False}
        orders = await stopped
        for poll in waiting:
            poll.cancel()
    assert [(stop.ref, stop.why) for stop in orders.stop] == [(ref, "cancelled")]
    assert begun == {runner.incarnation: 1}


async def test_dependants_of_a_cancelled_task_end_at_once(lab: Lab) -> None:
    upstream = await lab.submit()
    dependant = await lab.submit(depends_on=[str(upstream)])
    async with running(lab.components):
        with lab.components.wakeups.listen(dependant) as wakeups:
            await lab.components.canceller.cancel(lab.client, [upstream])
            await wakeups.wait(SOON * 2)
    assert await lab.status(dependant) == "cancelled"


async def test_a_node_that_joins_another_server_gets_waiting_tasks_at_once(
    lab: Lab, other: Components
) -> None:
    task = await lab.submit()
    async with running(lab.components, other):
        await lab.components.resource_manager.tick()
        node = at(await lab.node(by=other), other)
        orders = await node.poll(wait=25)
    assert [start.ref.task for start in orders.start] == [task]


async def test_attempts_of_a_node_removed_at_another_server_are_handed_over_at_once(
    lab: Lab, other: Components
) -> None:
    gone = await lab.node()
    ref = await lab.run(gone)
    node = at(await lab.node(), other)
    async with running(lab.components, other):
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.cluster_manager.remove(gone.id)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [ref.task]


async def test_attempts_that_a_leaving_node_never_started_are_handed_over_at_once(
    lab: Lab, other: Components
) -> None:
    gone = await lab.node()
    task = await lab.submit()
    await lab.schedule()
    node = at(await lab.node(), other)
    async with running(lab.components, other):
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.cluster_manager.leave(gone.id, gone.incarnation)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [task]


async def test_an_undrained_node_gets_tasks_at_once(lab: Lab, other: Components) -> None:
    node = at(await lab.node(), other)
    await other.cluster_manager.drain(node.id, draining=True)
    task = await lab.submit()
    async with running(lab.components, other):
        await lab.components.resource_manager.tick()
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.cluster_manager.drain(node.id, draining=False)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [task]


async def test_a_reservation_released_at_another_server_makes_room_at_once(
    lab: Lab, other: Components
) -> None:
    node = at(await lab.node(cpu=1), other)
    made = await other.reservations.reserve(
        lab.client, Resources(cpu_milli=1000), node_id=None, expires_at=None
    )
    task = await lab.submit(cpu=1)
    async with running(lab.components, other):
        await lab.components.resource_manager.tick()
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.reservations.release(lab.client, made)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [task]


async def test_a_lost_channel_is_reopened_and_everything_is_checked(
    lab: Lab, other: Components
) -> None:
    hints: asyncio.Queue[Hint] = asyncio.Queue()
    async with running(lab.components, other):
        lab.components.server_bus.subscribe(hints.put_nowait)
        await lab.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'duly server bus' and datname = current_database()"
        )
        assert await hints.get() == EVERYTHING
        while hints.empty():
            # The other server may still be connecting, and publishes nothing until then.
            other.server_bus.publish(Hint(tasks=frozenset({7})))
            await asyncio.sleep(0.01)
        assert await hints.get() == Hint(tasks=frozenset({7}))


async def test_a_burst_of_hints_is_coalesced(lab: Lab, other: Components) -> None:
    hints: list[Hint] = []
    everything = asyncio.Event()
    burst = 1000

    def handler(hint: Hint) -> None:
        hints.append(hint)
        if hint.tasks is None:
            everything.set()

    async with running(lab.components, other):
        lab.components.server_bus.subscribe(handler)
        for number in range(burst):
            other.server_bus.publish(Hint(tasks=frozenset({number})))
        await everything.wait()
    assert hints == [Hint(tasks=None)]


async def test_a_server_without_peers_publishes_nothing(lab: Lab) -> None:
    async with running(lab.components):
        lab.components.server_bus.publish(Hint(work=True))
        assert lab.components.server_bus._pending == Hint()
