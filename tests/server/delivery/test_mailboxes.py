"""A server delivers its own leases from mailboxes, without a read, and never twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from duly import wire
from duly.config import DatabaseSettings
from duly.errors import Fenced
from duly.store.connections.connection_classes import ConnectionClass, slots_per_class
from tests.server.lab import Lab, Node, seconds


@asynccontextmanager
async def without_reads(lab: Lab) -> AsyncIterator[None]:
    """Take every connection of polls, so that no poll can read the database."""
    async with AsyncExitStack() as stack:
        for _ in range(slots_per_class(DatabaseSettings().connections)[ConnectionClass.NODE]):
            await stack.enter_async_context(lab.database.connection(ConnectionClass.NODE))
        yield


async def poll_waits(lab: Lab, node: Node) -> None:
    """Return once a poll of the node waits."""
    while node.incarnation not in lab.components.polls._wakeups._listeners:
        await asyncio.sleep(0)


async def test_a_waiting_poll_gets_a_lease_without_a_read(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit(command=["echo", "hi"], execution_cap=77, idempotency_key="mine")
    async with without_reads(lab), asyncio.timeout(3), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(wait=20))
        await poll_waits(lab, node)
        await lab.schedule()
    (start,) = poll.result().start
    # Exactly as a read would return it.
    assert [start] == (await node.ask()).start
    assert (start.ref.task, start.payload.command) == (task, ["echo", "hi"])
    assert (start.execution_cap, start.idempotency_key) == (77.0, "mine")


async def test_the_cpu_quota_of_a_plan_reaches_the_node_with_and_without_a_read(lab):
    node = await lab.node()
    await node.poll()
    free = await lab.submit()
    lab.client = replace(lab.client, plan=replace(lab.client.plan, cpu_quota=True))
    bound = await lab.submit()
    await lab.schedule()
    async with without_reads(lab), asyncio.timeout(3):
        delivered = (await node.poll(wait=20)).start
    read = (await node.ask()).start
    for starts in (delivered, read):
        assert {start.ref.task: start.cpu_quota for start in starts} == {bound: True, free: False}


async def test_a_lease_between_two_polls_is_delivered_by_the_next_one_without_a_read(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit()
    await lab.schedule()
    async with without_reads(lab), asyncio.timeout(3):
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]


async def test_a_lost_response_is_repeated_at_once(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit()
    await lab.schedule()
    async with asyncio.timeout(3):
        assert [start.ref.task for start in (await node.ask(wait=20)).start] == [task]
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]


async def test_an_attempt_that_another_server_delivered_and_that_ended_is_not_delivered_again(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    node = await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    node.components = other
    (ref,) = await node.starts()
    assert await node.report(ref)
    node.components = lab.components
    assert await node.starts() == []


async def test_an_attempt_that_a_read_has_delivered_is_not_delivered_from_the_mailbox(lab):
    polls = lab.components.polls
    node = await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    (start,) = (await node.poll()).start
    assert await node.report(start.ref)
    # As if the scheduler had been delayed between the commit of the lease and its delivery.
    polls._mailboxes.put({node.incarnation: [start]})
    async with without_reads(lab), asyncio.timeout(3), asyncio.TaskGroup() as group:
        poll = group.create_task(node.poll(wait=20))
        await poll_waits(lab, node)
        await asyncio.sleep(0)
        assert not poll.done()
        poll.cancel()


async def test_an_attempt_cancelled_before_its_delivery_is_not_started(lab):
    node = await lab.node()
    await node.poll()
    task = await lab.submit()
    await lab.schedule()
    await lab.components.canceller.cancel(lab.client, [task])
    orders = await node.poll()
    assert orders.start == []
    assert [(stop.ref.task, stop.why) for stop in orders.stop] == [(task, "cancelled")]


async def test_an_old_mailbox_is_not_used(lab):
    node = await lab.node()
    await node.poll()
    await lab.submit()
    await lab.schedule()
    gone = await lab.rejoin(node)
    await lab.clock.move(seconds(2))
    with pytest.raises(Fenced):
        await node.poll()
    assert await gone.starts() == []


async def test_a_node_gets_nothing_from_the_mailbox_of_another(lab):
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
        await poll_waits(lab, node)
        new = group.create_task(node.ask(wait=20))
        assert await old == wire.PollResponse(start=[], stop=[])
        await lab.submit()
        await lab.schedule()
        assert len((await new).start) == 1


async def test_polls_without_the_latest_token_always_read(lab):
    node = await lab.node()
    node.latest = None
    await node.ask()
    task = await lab.submit()
    await lab.schedule()
    for _ in range(2):
        assert [start.ref.task for start in (await node.ask(wait=20)).start] == [task]


async def test_a_lease_during_the_first_read_is_delivered_at_once(lab, monkeypatch):
    node = await lab.node()
    task = await lab.submit()
    expected = lab.components.polls._expected_attempts
    read = expected.read

    async def slow_read(*arguments):
        rows = await read(*arguments)
        monkeypatch.setattr(expected, "read", read)
        await lab.schedule()
        return rows

    monkeypatch.setattr(expected, "read", slow_read)
    async with asyncio.timeout(3):
        assert [start.ref.task for start in (await node.poll(wait=20)).start] == [task]
