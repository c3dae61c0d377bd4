"""Thousands of waits in one event loop take a few polls."""

import asyncio

from duly.client.functions.shared_waits import MAX_POLLS, SharedWaits
from duly.errors import Unavailable


class Tasks:
    """Tasks that end when told, and the polls that ask for them."""

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.changed = asyncio.Event()
        self.open_polls = 0
        self.max_polls = 0
        self.count = 0

    def end(self, *ids: str) -> None:
        self.ended |= set(ids)
        self.changed.set()
        self.changed = asyncio.Event()

    async def poll(self, ids: list[str], seconds: float) -> list[str]:
        self.count += 1
        self.open_polls += 1
        self.max_polls = max(self.max_polls, self.open_polls)
        try:
            while not (found := [one for one in ids if one in self.ended]):
                await self.changed.wait()
            return found
        finally:
            self.open_polls -= 1


async def test_newcomers_never_open_more_than_a_few_polls():
    tasks = Tasks()
    waits = SharedWaits(tasks.poll)
    async with asyncio.TaskGroup() as group:
        for first in range(0, 1000, 50):
            for number in range(first, first + 50):
                group.create_task(waits.wait(str(number), None))
            before = tasks.count
            while tasks.count == before:  # until the newcomers are asked for
                await asyncio.sleep(0)
        for number in range(1000):
            tasks.end(str(number))
    assert tasks.max_polls <= MAX_POLLS
    assert tasks.count < 1000


async def test_a_wait_ends_with_its_time_and_its_poll_with_the_last_wait():
    tasks = Tasks()
    waits = SharedWaits(tasks.poll)
    assert not await waits.wait("1", 0.01)
    while waits.poll_count:
        await asyncio.sleep(0)
    assert tasks.open_polls == 0
    tasks.end("1")
    assert await waits.wait("1", None)


async def test_an_error_of_the_poll_reaches_everyone_who_waits():
    async def refuse(ids: list[str], seconds: float) -> list[str]:
        raise Unavailable("not now")

    waits = SharedWaits(refuse)
    results = await asyncio.gather(
        *(waits.wait(name, None) for name in "aab"), return_exceptions=True
    )
    assert [type(result) for result in results] == [Unavailable] * 3
