import asyncio

import pytest

from duly.alarm import Deadline


@pytest.fixture
async def rung():
    """What has rung, in order, and how to make something that does."""
    loop, order, made = asyncio.get_running_loop(), list[str](), list[Deadline]()

    def deadline(name):
        made.append(Deadline(loop, lambda: order.append(name)))
        return made[-1]

    yield order, deadline
    for one in made:
        one.close()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_deadline_rings_once(rung):
    order, deadline = rung
    first, last = deadline("first"), deadline("last")
    first.set(0.01)
    last.set(0.05)
    assert first.is_set
    await until(lambda: "last" in order)
    assert order == ["first", "last"]
    assert not first.is_set


async def test_one_that_is_called_off_does_not_ring_and_can_be_set_again(rung):
    order, deadline = rung
    off, again, last = deadline("off"), deadline("again"), deadline("last")
    off.set(0.01)
    off.call_off()
    again.set(0.01)
    again.call_off()
    again.set(0.02)
    last.set(0.05)
    await until(lambda: "last" in order)
    assert order == ["again", "last"]


async def test_one_that_is_put_off_rings_at_the_later_time_and_one_set_sooner_at_the_sooner(rung):
    order, deadline = rung
    later, middle, sooner = deadline("later"), deadline("middle"), deadline("sooner")
    later.set(0.01)
    later.set(0.08)
    sooner.set(600)
    sooner.set(0.01)
    middle.set(0.04)
    await until(lambda: "later" in order)
    assert order == ["sooner", "middle", "later"]


async def test_a_closed_one_leaves_nothing_behind(rung):
    order, deadline = rung
    closed, last = deadline("closed"), deadline("last")
    closed.set(0.01)
    closed.close()
    last.set(0.03)
    await until(lambda: "last" in order)
    assert order == ["last"]
