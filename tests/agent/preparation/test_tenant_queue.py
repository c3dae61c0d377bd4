"""Whose turn it is when tenants share the workers of a node."""

import asyncio
from contextlib import ExitStack

import pytest

from duly.agent.preparation.tenant_queue import TenantQueue

ONE, TWO = 1, 2


async def take(queue, stack):
    async with asyncio.timeout(5):
        return stack.enter_context(queue.take(await queue.next_tenant()))


@pytest.fixture
def queue():
    return TenantQueue(2)


async def test_tenants_take_turns_and_each_keeps_its_order(queue):
    for item in ("a", "b", "c"):
        queue.put(ONE, item)
    queue.put(TWO, "x")
    taken = []
    for _ in range(4):
        with ExitStack() as stack:
            taken.append(await take(queue, stack))
    assert taken == ["a", "x", "b", "c"]


async def test_a_tenant_alone_leaves_one_worker_to_who_comes_next(queue):
    for item in ("a", "b", "c"):
        queue.put(ONE, item)
    with ExitStack() as stack:
        assert [await take(queue, stack) for _ in range(2)] == ["a", "b"]
        third = asyncio.create_task(take(queue, stack))
        await asyncio.sleep(0)
        assert not third.done()
        queue.put(TWO, "x")
        assert await third == "x"


async def test_a_tenant_has_one_worker_while_another_waits(queue):
    with ExitStack() as both, ExitStack() as first:
        queue.put(ONE, "a")
        assert await take(queue, first) == "a"
        queue.put(TWO, "x")
        assert await take(queue, both) == "x"
        for item in ("b", "y"):
            queue.put(ONE if item == "b" else TWO, item)
        third = asyncio.create_task(take(queue, both))
        await asyncio.sleep(0)
        assert not third.done()
        first.close()
        assert await third == "b"
