import asyncio
from contextlib import asynccontextmanager

import pytest

from duly.errors import Unavailable
from duly.server.service import Service
from tests.server.lab import seconds


class Counting(Service):
    """Counts its ticks, and does in each what a test has planned for it."""

    def __init__(self, interval=60.0):
        super().__init__(seconds(interval))
        self.ticks = 0
        self.plan = {}
        self._ticked = asyncio.Condition()

    async def tick(self):
        self.ticks += 1
        async with self._ticked:
            self._ticked.notify_all()
        planned = self.plan.get(self.ticks, False)
        if isinstance(planned, Exception):
            raise planned
        return await planned() if callable(planned) else planned

    async def reach(self, ticks):
        """Wait until there have been so many ticks."""
        async with asyncio.timeout(5), self._ticked:
            await self._ticked.wait_for(lambda: self.ticks >= ticks)


@asynccontextmanager
async def running(service):
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(service.run())
        yield loop
        loop.cancel()


async def settle():
    """Let everything that can happen now happen."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_service_ticks_at_once_and_then_rests():
    service = Counting()
    async with running(service):
        await service.reach(1)
        await settle()
        assert service.ticks == 1


async def test_a_service_ticks_again_after_its_interval():
    service = Counting(interval=0.001)
    async with running(service):
        await service.reach(3)


async def test_a_service_with_more_to_do_does_not_rest():
    service = Counting()
    service.plan = {1: True, 2: True}
    async with running(service):
        await service.reach(3)
        await settle()
    assert service.ticks == 3


async def test_a_nudge_asks_for_a_tick_now():
    service = Counting()
    async with running(service):
        await service.reach(1)
        service.nudge()
        await service.reach(2)


async def test_nudges_that_come_during_a_tick_are_one():
    service = Counting()
    gate = asyncio.Event()

    async def held_up():
        await gate.wait()
        return False

    service.plan = {1: held_up}
    async with running(service):
        await service.reach(1)
        for _ in range(5):
            service.nudge()
        gate.set()
        await service.reach(2)
        await settle()
    assert service.ticks == 2


async def test_an_error_in_one_tick_does_not_end_the_loop(caplog):
    service = Counting(interval=0.001)
    service.plan = {1: RuntimeError("broken"), 2: ValueError("again")}
    async with running(service) as loop:
        await service.reach(3)
        assert not loop.done()
    assert [record.message for record in caplog.records] == ["Counting: tick failed"] * 2


@pytest.mark.parametrize("always_reads", [True, False])
async def test_a_database_that_is_away_is_told_once_until_it_is_back(
    caplog, monkeypatch, always_reads
):
    monkeypatch.setattr(Counting, "always_reads", always_reads)
    service = Counting(interval=0.001)
    service.plan = {number: Unavailable("gone") for number in (1, 2, 3, 5)}
    async with running(service):
        await service.reach(6)
    # Of a component that does not always read, a tick that succeeds shows nothing.
    back = ["Counting succeeds again"] if always_reads else []
    assert [record.message for record in caplog.records] == [
        "Counting tries again until it succeeds: gone",
        *back,
    ] * 2


async def test_a_service_stops_when_it_is_cancelled():
    service = Counting()
    async with running(service) as loop:
        await service.reach(1)
        loop.cancel()
        await asyncio.wait([loop], timeout=5)
        assert loop.cancelled()


async def test_a_service_finishes_the_tick_that_is_under_way_and_no_other():
    service, go_on = Counting(), asyncio.Event()

    async def slow():
        await go_on.wait()
        return True

    service.plan[1] = slow
    async with running(service) as loop:
        await service.reach(1)
        service.finish()
        await settle()
        assert not loop.done()
        go_on.set()
        async with asyncio.timeout(5):
            await loop
    assert service.ticks == 1


async def test_a_service_that_rests_finishes_at_once():
    service = Counting()
    async with running(service) as loop:
        await service.reach(1)
        await settle()
        service.finish()
        async with asyncio.timeout(5):
            await loop
    assert service.ticks == 1


@pytest.mark.parametrize("error", [Unavailable("The connection was lost."), OSError("closed")])
async def test_a_cancellation_that_a_tick_reports_as_an_error_ends_the_loop(error):
    async def lose_connection():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise error from None

    service = Counting()
    service.plan[1] = lose_connection
    async with asyncio.timeout(5), running(service):
        await service.reach(1)
