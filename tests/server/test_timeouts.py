"""A client waits so long and no longer; what it asked for is broken off only if it reads."""

import asyncio
from datetime import timedelta

import pytest

from duly.config import RequestSettings, Settings
from duly.errors import Conflict, Unavailable
from duly.server.recurrence import timekeeper
from duly.server.timeouts import Timeouts
from duly.store.connections.connection_classes import DUTY_CONNECTIONS

SOON = timedelta(seconds=0.05)


@pytest.fixture
def settings():
    return Settings(requests=RequestSettings(timeout=SOON))


async def test_a_read_is_broken_off():
    ended = asyncio.Event()
    with pytest.raises(Unavailable):
        async with Timeouts(SOON).reading():
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
    assert ended.is_set()


async def test_a_write_goes_on_by_itself_and_is_waited_for_at_the_end():
    timeouts, go_on, done = Timeouts(SOON), asyncio.Event(), asyncio.Event()

    async def write():
        await go_on.wait()
        done.set()

    with pytest.raises(Unavailable, match="not known"):
        await timeouts.writing(write())
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    await timeouts.close(10)
    assert done.is_set()


async def test_a_write_goes_on_when_its_client_is_gone():
    timeouts, done = Timeouts(timedelta(seconds=60)), asyncio.Event()
    go_on = asyncio.Event()

    async def write():
        await go_on.wait()
        done.set()

    asked = asyncio.ensure_future(timeouts.writing(write()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    go_on.set()
    await timeouts.close(10)
    assert done.is_set()


async def test_an_error_of_a_write_is_told():
    async def write():
        raise Conflict("no")

    with pytest.raises(Conflict):
        await Timeouts(SOON).writing(write())


async def test_who_waits_in_vain_is_taken_out_of_the_line(lab):
    await lab.components.submitter._shapes.get_or_create([lab.spec()])
    with pytest.raises(Unavailable, match="Nothing was stored"):
        await lab.components.submitter.submit(lab.client, lab.spec())
    await lab.components.submitter.tick()
    assert await lab.count("tasks") == 0


async def test_who_is_on_the_way_to_the_database_is_told_that_nothing_is_known(lab):
    submitter = lab.components.submitter
    await submitter._shapes.get_or_create([lab.spec()])
    async with lab.conn.transaction():
        await lab.conn.execute("lock table live in share mode")
        asked = asyncio.ensure_future(submitter.submit(lab.client, lab.spec()))
        await asyncio.sleep(0)
        committing = asyncio.ensure_future(submitter.tick())
        with pytest.raises(Unavailable, match="not known"):
            await asked
    await committing
    assert await lab.count("tasks") == 1


async def test_every_loop_has_a_connection_that_is_never_lent_out(lab):
    # The server bus has one of its own, beside the pool, and the store guard needs none; the
    # timekeeper may use several.
    assert (
        len(lab.components.services) - 2 + (timekeeper.MAX_CONCURRENT_BATCHES - 1)
        == DUTY_CONNECTIONS
    )
