"""What a server has leased itself, it tells without looking; and never twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from duly import wire
from duly.config import DatabaseSettings
from duly.errors import Fenced
from duly.store.lanes import Lane, shares
from tests.server.lab import Lab, Node, seconds


@asynccontextmanager
async def nobody_looks(lab: Lab) -> AsyncIterator[None]:
    """Keep every connection that polls look with, so that none of them can."""
    async with AsyncExitStack() as stack:
        for _ in range(shares(DatabaseSettings().connections)[Lane.NODE]):
            await stack.enter_async_context(lab.database.connection(Lane.NODE))
        yield


async def waiting(lab: Lab, node: Node) -> None:
    """Return once a poll of the node waits."""
    while node.incarnation not in lab.parts.polls._waiting._waiting:
        await asyncio.sleep(0)


async def test_a_poll_that_waits_is_told_of_a_lease_without_a_look(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit(command=["echo", "hi"], execution_cap=77, idempotency_key="mine")
    async with nobody_looks(lab), asyncio.timeout(3), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(wait=20))
        await waiting(lab, node)
        await lab.schedule()
    (start,) = poll.result().start
    # Exactly as a look would tell it.
    assert [start] == (await node.ask()).start
    assert (start.ref.task, start.payload.command) == (task, ["echo", "hi"])
    assert (start.execution_cap, start.idempotency_key) == (77.0, "mine")


async def test_the_cpu_quota_of_a_plan_reaches_the_node_with_and_without_a_look(lab):
    node = await lab.node()
    await node.poll()
    free = await lab.submit()
    lab.client = replace(lab.client, plan=replace(lab.client.plan, cpu_quota=True))
    bound = await lab.submit()
    await lab.schedule()
    async with nobody_looks(lab), asyncio.timeout(3):
        told = (await node.poll(wait=20)).start
    looked_up = (await node.ask()).start
    for starts in (told, looked_up):
        assert {start.ref.task: start.cpu_quota for start in starts} == {bound: True, free: False}


async def test_what_is_leased_between_two_polls_is_told_by_the_next_one_without_a_look(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit()
    await lab.schedule()
    async with nobody_looks(lab), asyncio.timeout(3):
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]


async def test_an_answer_that_was_lost_is_given_again_at_once(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit()
    await lab.schedule()
    async with asyncio.timeout(3):
        assert [start.ref.task for start in (await node.ask(wait=20)).start] == [task]
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]


async def test_what_another_server_told_and_has_ended_is_not_told_again(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    node = await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    node.parts = other
    (ref,) = await node.starts()
    assert await node.report(ref)
    node.parts = lab.parts
    assert await node.starts() == []


async def test_a_look_that_was_faster_than_the_word_of_a_lease_is_not_repeated(lab):
    polls = lab.parts.polls
    node = await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    (start,) = (await node.poll()).start
    assert await node.report(start.ref)
    # As if the one who made the lease had been kept from saying so until now.
    polls._deliveries.put({node.incarnation: [start]})
    async with nobody_looks(lab), asyncio.timeout(3), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(wait=20))
        await waiting(lab, node)
        await asyncio.sleep(0)
        assert not poll.done()
        poll.cancel()


async def test_what_was_cancelled_before_it_was_told_is_not_started(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit()
    await lab.schedule()
    await lab.parts.canceller.cancel(lab.client, [task])
    orders = await node.poll()
    assert orders.start == []
    assert [(stop.ref.task, stop.why) for stop in orders.stop] == [(task, "cancelled")]


async def test_what_is_old_is_looked_up(lab):
    node = await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    gone = await lab.rejoin(node)
    await lab.clock.move(seconds(2))
    with pytest.raises(Fenced):
        await node.poll()
    assert await gone.starts() == []


async def test_a_node_is_told_nothing_of_another(lab):
    node, thief = await lab.node(), await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    thief.incarnation = node.incarnation
    with pytest.raises(Fenced):
        await thief.poll()


async def test_a_poll_ends_when_its_agent_has_sent_another(lab):
    node = await lab.node()
    await node.poll()
    async with asyncio.timeout(3), asyncio.TaskGroup() as group:
        old = group.create_task(node.ask(wait=20))
        await waiting(lab, node)
        new = group.create_task(node.ask(wait=20))
        assert await old == wire.Orders(start=[], stop=[])
        await lab.submit()
        await lab.schedule()
        assert len((await new).start) == 1


async def test_an_agent_that_does_not_say_what_it_was_given_is_always_looked_up(lab):
    node = await lab.node()
    node.latest = None
    await node.ask()
    task = await lab.submit()
    await lab.schedule()
    for _ in range(2):
        assert [start.ref.task for start in (await node.ask(wait=20)).start] == [task]


async def test_what_is_leased_during_the_first_look_is_told_at_once(lab, monkeypatch):
    node = await lab.node()
    task = await lab.submit()
    holdings = lab.parts.polls._holdings
    look = holdings.read

    async def slow_look(*arguments):
        found = await look(*arguments)
        monkeypatch.setattr(holdings, "read", look)
        await lab.schedule()
        return found

    monkeypatch.setattr(holdings, "read", slow_look)
    async with asyncio.timeout(3):
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]
