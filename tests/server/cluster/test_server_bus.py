"""Two servers on one database: what happens on one is known on the other at once.

Every loop and every second look is a minute apart here, so that only word from the other server
explains what happens within seconds.
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
from duly.server import polls
from duly.server.deliveries import Box
from duly.server.news import EVERYTHING, News
from duly.server.parts import Parts
from tests.server.lab import Lab, Node

SOON = 10.0
RARELY = timedelta(minutes=1)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(polls, "RECHECK", RARELY)
    return Settings(scheduling=SchedulingSettings(interval=RARELY))


@pytest.fixture
async def other(lab: Lab) -> Parts:
    """A second server, which does not lead."""
    other = lab.server()
    await other.cluster_manager.tick()
    assert (lab.parts.cluster_manager.term is None, other.cluster_manager.term) == (False, None)
    return other


@asynccontextmanager
async def running(*servers: Parts) -> AsyncIterator[None]:
    """Run everything but the cluster managers, whose terms the standing clock keeps."""
    for parts in servers:
        await parts.herald.tick()
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        loops = [
            group.create_task(service.run())
            for parts in servers
            for service in parts.services
            if service not in (parts.cluster_manager, parts.retention)
        ]
        await asyncio.sleep(0)  # Let each of them begin, so that it also ends.
        yield
        for loop in loops:
            loop.cancel()


def at(node: Node, parts: Parts) -> Node:
    """Let a node speak to another server."""
    node.parts = parts
    return node


def count_looks(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[int], Counter[int]]:
    """Count by incarnation how many looks of polls into the database begin, and how many end."""
    begun, ended = Counter[int](), Counter[int]()
    look = polls.Polls._look

    async def counted(self: polls.Polls, node_id: int, poll: wire.Poll, box: Box) -> wire.Orders:
        begun[poll.incarnation] += 1
        orders = await look(self, node_id, poll, box)
        ended[poll.incarnation] += 1
        return orders

    monkeypatch.setattr(polls.Polls, "_look", counted)
    return begun, ended


async def test_what_is_submitted_to_a_server_that_does_not_lead_is_started_at_once(
    lab: Lab, other: Parts
) -> None:
    node = at(await lab.node(), other)
    async with running(lab.parts, other):
        poll = asyncio.ensure_future(node.poll(wait=25))
        admitted = await other.submitter.submit(lab.client, lab.spec())
        orders = await poll
    assert [start.ref.task for start in orders.start] == [admitted.id]


async def test_what_ends_on_one_server_makes_room_and_wakes_who_waits_on_another(
    lab: Lab, other: Parts
) -> None:
    node = await lab.node(cpu=1)
    first = await lab.run(node, cpu=1)
    at(node, other)
    async with running(lab.parts, other):
        second = await lab.parts.submitter.submit(lab.client, lab.spec(cpu=1))
        with lab.parts.bell.listen(first.task) as bell:
            assert await node.report(first)
            await bell.wait(SOON * 2)
        orders = await node.poll(wait=25)
    assert [start.ref.task for start in orders.start] == [second.id]


async def test_the_leader_learns_of_a_time_that_comes_sooner_than_it_knows(
    lab: Lab, other: Parts
) -> None:
    node = await lab.node()
    soon = timedelta(seconds=1)
    async with running(lab.parts, other):
        spec = lab.spec(run_at=lab.clock.now + soon)
        admitted = await other.submitter.submit(lab.client, spec)
        await lab.clock.move(soon)
        orders = await node.poll(wait=25)
    assert [start.ref.task for start in orders.start] == [admitted.id]


async def test_a_cancel_on_one_server_reaches_the_node_that_waits_at_another(
    lab: Lab, other: Parts
) -> None:
    node = at(await lab.node(), lab.parts)
    ref = await lab.run(node)
    async with running(lab.parts, other):
        poll = asyncio.ensure_future(node.poll(ref, wait=25))
        assert await other.canceller.cancel(lab.client, [ref.task]) == {ref.task: False}
        orders = await poll
    assert [(stop.ref, stop.why) for stop in orders.stop] == [(ref, "cancelled")]


@pytest.mark.parametrize("where", [0, 1])
async def test_a_cancel_wakes_the_poll_of_the_node_that_runs_the_task_and_no_other(
    lab: Lab, other: Parts, monkeypatch: pytest.MonkeyPatch, where: int
) -> None:
    servers = [lab.parts, other]
    runner = await lab.node()
    ref = await lab.run(runner)
    at(runner, servers[where])
    idle = [at(await lab.node(cpu=0), parts) for parts in servers * 2]
    begun, ended = count_looks(monkeypatch)
    async with running(*servers):
        waiting = [asyncio.ensure_future(node.poll(wait=25)) for node in idle]
        stopped = asyncio.ensure_future(runner.poll(ref, wait=25))
        while len(ended) < len(idle) + 1:
            await asyncio.sleep(0)
        begun.clear()
        assert await lab.parts.canceller.cancel(lab.client, [ref.task]) == {ref.task: False}
        orders = await stopped
        for poll in waiting:
            poll.cancel()
    assert [(stop.ref, stop.why) for stop in orders.stop] == [(ref, "cancelled")]
    assert begun == {runner.incarnation: 1}


async def test_what_waits_for_a_task_ends_at_once_when_that_is_cancelled(lab: Lab) -> None:
    upstream = await lab.submit()
    dependant = await lab.submit(depends_on=[str(upstream)])
    async with running(lab.parts):
        with lab.parts.bell.listen(dependant) as bell:
            await lab.parts.canceller.cancel(lab.client, [upstream])
            await bell.wait(SOON * 2)
    assert await lab.status(dependant) == "cancelled"


async def test_a_node_that_joins_at_another_server_is_given_what_waits_at_once(
    lab: Lab, other: Parts
) -> None:
    task = await lab.submit()
    async with running(lab.parts, other):
        await lab.parts.resource_manager.tick()
        node = at(await lab.node(by=other), other)
        orders = await node.poll(wait=25)
    assert [start.ref.task for start in orders.start] == [task]


async def test_what_ran_on_a_node_that_is_removed_at_another_server_is_handed_over_at_once(
    lab: Lab, other: Parts
) -> None:
    gone = await lab.node()
    ref = await lab.run(gone)
    node = at(await lab.node(), other)
    async with running(lab.parts, other):
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.cluster_manager.remove(gone.id)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [ref.task]


async def test_what_a_node_never_began_is_handed_over_at_once_when_it_leaves(
    lab: Lab, other: Parts
) -> None:
    gone = await lab.node()
    task = await lab.submit()
    await lab.schedule()
    node = at(await lab.node(), other)
    async with running(lab.parts, other):
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.cluster_manager.leave(gone.id, gone.incarnation)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [task]


async def test_a_node_that_may_take_work_again_is_given_some_at_once(
    lab: Lab, other: Parts
) -> None:
    node = at(await lab.node(), other)
    await other.cluster_manager.drain(node.id, draining=True)
    task = await lab.submit()
    async with running(lab.parts, other):
        await lab.parts.resource_manager.tick()
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.cluster_manager.drain(node.id, draining=False)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [task]


async def test_what_is_reserved_and_released_at_another_server_is_given_at_once(
    lab: Lab, other: Parts
) -> None:
    node = at(await lab.node(cpu=1), other)
    made = await other.reservations.reserve(
        lab.client, Resources(cpu_milli=1000), node_id=None, expires_at=None
    )
    task = await lab.submit(cpu=1)
    async with running(lab.parts, other):
        await lab.parts.resource_manager.tick()
        poll = asyncio.ensure_future(node.poll(wait=25))
        await other.reservations.release(lab.client, made)
        orders = await poll
    assert [start.ref.task for start in orders.start] == [task]


async def test_a_line_that_is_cut_is_opened_again_and_everything_is_looked_at(
    lab: Lab, other: Parts
) -> None:
    heard: asyncio.Queue[News] = asyncio.Queue()
    async with running(lab.parts, other):
        lab.parts.herald.subscribe(heard.put_nowait)
        await lab.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'duly herald' and datname = current_database()"
        )
        assert await heard.get() == EVERYTHING
        while heard.empty():
            # The other one may still be opening its own line, and say nothing until then.
            other.herald.tell(News(tasks=frozenset({7})))
            await asyncio.sleep(0.01)
        assert await heard.get() == News(tasks=frozenset({7}))


async def test_a_burst_is_told_in_few_messages(lab: Lab, other: Parts) -> None:
    heard: list[News] = []
    everything = asyncio.Event()
    burst = 1000

    def listen(told: News) -> None:
        heard.append(told)
        if told.tasks is None:
            everything.set()

    async with running(lab.parts, other):
        lab.parts.herald.subscribe(listen)
        for number in range(burst):
            other.herald.tell(News(tasks=frozenset({number})))
        await everything.wait()
    assert heard == [News(tasks=None)]


async def test_a_server_that_is_alone_tells_nobody(lab: Lab) -> None:
    async with running(lab.parts):
        lab.parts.herald.tell(News(work=True))
        assert lab.parts.herald._gathered == News()
