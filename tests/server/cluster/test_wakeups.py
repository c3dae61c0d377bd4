import asyncio
from contextlib import ExitStack

import pytest

from duly.server.bell import Bell

LONG = 60


@pytest.fixture
def bell():
    return Bell()


async def is_silent(listener):
    """Say whether nothing has rung."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(listener.wait(LONG))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        silent = not waiting.done()
        waiting.cancel()
    return silent


async def test_a_ring_wakes_everyone_who_listens_for_that_task(bell):
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        with bell.listen(1) as one, bell.listen(1) as two:
            waiting = [group.create_task(listener.wait(LONG)) for listener in (one, two)]
            bell.ring([1])
            await asyncio.gather(*waiting)


async def test_a_ring_for_another_task_wakes_nobody(bell):
    with bell.listen(1) as listener:
        bell.ring([2, 3])
        assert await is_silent(listener)


async def test_a_ring_before_the_wait_is_kept(bell):
    with bell.listen(1) as listener:
        bell.ring([1])
        async with asyncio.timeout(5):
            await listener.wait(LONG)


async def test_a_ring_is_heard_once(bell):
    with bell.listen(1) as listener:
        bell.ring([1])
        bell.ring([1])
        await listener.wait(LONG)
        assert await is_silent(listener)


async def test_a_wait_ends_by_itself(bell):
    with bell.listen(1) as listener:
        await listener.wait(0)


async def test_nobody_is_listened_for_after_the_last_has_gone(bell):
    with bell.listen(1):
        with bell.listen(1):
            pass
        assert bell._waiting.keys() == {1}
    assert not bell._waiting
    bell.ring([1])


async def test_the_more_wait_the_later_each_looks_by_itself(bell):
    with ExitStack() as listening:
        for one in range(800):
            listening.enter_context(bell.listen(one % 2))
        assert bell.patience(0.5) == 2.0
        assert bell.patience(3.0) == 3.0
    assert bell.patience(0.5) == 0.5
