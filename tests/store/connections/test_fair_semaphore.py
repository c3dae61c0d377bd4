"""Tenants share turns; none waits behind the queue of another."""

import asyncio

import pytest

from duly.store.connections.fair_semaphore import FairSemaphore


async def test_a_group_holds_no_more_than_is_free() -> None:
    turns = FairSemaphore(4)
    assert [turns.try_acquire(1) for _ in range(3)] == [True, True, False]
    assert [turns.try_acquire(2) for _ in range(2)] == [True, False]
    assert [turns.try_acquire(None) for _ in range(2)] == [True, False]
    assert not turns.try_acquire(3)


async def test_those_who_wait_are_served_round_robin() -> None:
    turns, served = FairSemaphore(1), []

    async def use(group: int) -> None:
        await turns.acquire(group)
        served.append(group)
        turns.release(group)

    await turns.acquire(0)
    async with asyncio.TaskGroup() as tasks:
        for group in (1, 1, 1, 2, 3):
            tasks.create_task(use(group))
        await asyncio.sleep(0)
        turns.release(0)
    assert served == [1, 2, 3, 1, 1]
    assert turns.try_acquire(4)


@pytest.mark.parametrize("has_come", [False, True])
async def test_a_wait_that_is_cancelled_takes_no_turn_along(has_come: bool) -> None:
    turns = FairSemaphore(1)
    await turns.acquire(1)
    waiting = asyncio.ensure_future(turns.acquire(2))
    await asyncio.sleep(0)
    if has_come:
        turns.release(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not has_come:
        turns.release(1)
    assert turns.try_acquire(3)
