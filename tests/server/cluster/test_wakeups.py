"""Wake-ups reach the listeners of their id, and are kept until the next wait."""

import asyncio
from contextlib import ExitStack

import pytest

from duly.server.cluster.wakeups import Wakeups

LONG = 60


@pytest.fixture
def wakeups():
    return Wakeups()


async def is_asleep(listener):
    """Return True if nothing wakes the listener."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(listener.wait(LONG))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asleep = not waiting.done()
        waiting.cancel()
    return asleep


async def test_a_wake_up_wakes_all_listeners_of_its_task(wakeups):
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        with wakeups.listen(1) as first, wakeups.listen(1) as second:
            waiting = [group.create_task(listener.wait(LONG)) for listener in (first, second)]
            wakeups.wake([1])
            await asyncio.gather(*waiting)


async def test_a_wake_up_of_another_task_wakes_no_listener(wakeups):
    with wakeups.listen(1) as listener:
        wakeups.wake([2, 3])
        assert await is_asleep(listener)


async def test_a_wake_up_before_the_wait_is_kept(wakeups):
    with wakeups.listen(1) as listener:
        wakeups.wake([1])
        async with asyncio.timeout(5):
            await listener.wait(LONG)


async def test_two_wake_ups_before_a_wait_end_one_wait(wakeups):
    with wakeups.listen(1) as listener:
        wakeups.wake([1])
        wakeups.wake([1])
        await listener.wait(LONG)
        assert await is_asleep(listener)


async def test_a_wait_ends_at_its_timeout(wakeups):
    with wakeups.listen(1) as listener:
        await listener.wait(0)


async def test_a_task_is_dropped_with_its_last_listener(wakeups):
    with wakeups.listen(1):
        with wakeups.listen(1):
            pass
        assert wakeups._listeners.keys() == {1}
    assert not wakeups._listeners
    wakeups.wake([1])


async def test_the_recheck_interval_grows_with_the_listeners(wakeups):
    with ExitStack() as listening:
        for number in range(800):
            listening.enter_context(wakeups.listen(number % 2))
        assert wakeups.recheck_interval(0.5) == 2.0
        assert wakeups.recheck_interval(3.0) == 3.0
    assert wakeups.recheck_interval(0.5) == 0.5


async def test_nothing_is_waited_for_once_they_are_closed(wakeups):
    async with asyncio.timeout(5):
        with wakeups.listen(1) as listener:
            async with asyncio.TaskGroup() as group:
                group.create_task(listener.wait(LONG))
                await asyncio.sleep(0)
                wakeups.close()
            await listener.wait(LONG)
        with wakeups.listen(2) as later:
            await later.wait(LONG)
    assert wakeups.is_closed
