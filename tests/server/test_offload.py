"""What takes long is done aside, and others are served meanwhile."""

import asyncio
import gc
import threading

import pytest

from duly.server.offload import MIN_BYTES, MIN_TASKS, collector_paused, offload


def whereabouts():
    return threading.current_thread()


async def test_what_is_small_is_done_in_place():
    assert await offload(MIN_TASKS - 1, whereabouts) is threading.current_thread()


async def test_what_is_large_is_done_in_another_thread_while_the_loop_goes_on():
    began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work():
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(30)
        return whereabouts()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(offload(MIN_TASKS, work))
        await began.wait()
        go_on.set()
    assert working.result() is not threading.current_thread()


async def test_large_requests_are_done_one_after_the_other():
    go_on = threading.Event()

    def work():
        assert go_on.wait(30)
        return whereabouts()

    async with asyncio.TaskGroup() as group:
        working = [group.create_task(offload(MIN_TASKS, work)) for _ in range(3)]
        # All of them are asked for; a second thread would have begun by now.
        await asyncio.sleep(0)
        go_on.set()
    assert len({one.result() for one in working}) == 1


async def test_what_goes_wrong_is_raised_where_it_is_waited_for():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await offload(MIN_TASKS, fail)


def test_the_collector_stays_away_from_a_large_request_and_comes_back():
    with collector_paused(MIN_BYTES - 1):
        assert gc.isenabled()
    with pytest.raises(ValueError), collector_paused(MIN_BYTES):
        assert not gc.isenabled()
        with collector_paused(MIN_BYTES):
            pass
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()
