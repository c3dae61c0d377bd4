"""A commit that waits for a synchronous standby counts only once the standby has it.

The standby of these tests does not exist, so every commit waits for it until the test cancels
the wait. PostgreSQL then reports success, with a warning.
"""

import asyncio

import pytest

from duly import wire
from duly.errors import Unavailable
from duly.store.database import Database, confirm
from tests.server.lab import Lab
from tests.server.standby import Standby


@pytest.fixture
async def settled(lab: Lab) -> Lab:
    """A server that knows the shape of the tasks that will be submitted."""
    await lab.submit()
    return lab


async def test_a_commit_whose_wait_for_the_standby_was_cancelled_does_not_count(
    database: Database, standby: Standby
) -> None:
    await standby.lose()

    async def write() -> None:
        async with database.connection() as conn:
            await confirm(conn)

    async def write_in_transaction() -> None:
        async with database.transaction() as conn:
            await confirm(conn)

    for write_somehow in (write, write_in_transaction):
        writing = asyncio.ensure_future(write_somehow())
        await standby.cancel_wait()
        with pytest.raises(Unavailable, match="did not confirm"):
            await writing


async def test_a_caller_that_goes_away_cancels_no_wait(
    database: Database, standby: Standby
) -> None:
    await standby.lose()

    async def write() -> None:
        async with database.transaction() as conn:
            await confirm(conn)

    writing = asyncio.ensure_future(write())
    pid = await standby.waiting()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await standby.waiting() == pid

    await standby.forget()
    async with database.connection() as conn:
        assert await conn.fetchval("select 1") == 1


async def test_a_task_that_may_be_lost_is_not_acknowledged(settled: Lab, standby: Standby) -> None:
    await standby.lose()
    spec = settled.spec(idempotency_key="k")
    for _ in range(2):  # The key is new first, and used then.
        submitting = asyncio.ensure_future(settled.submit_all([spec]))
        await standby.cancel_waits_until(submitting)
        (answer,) = await submitting
        assert isinstance(answer, Unavailable)

    await standby.forget()
    (answer,) = await settled.submit_all([spec])
    assert not answer.created
    assert await settled.count("tasks") == 2


async def test_a_task_whose_response_was_lost_is_acknowledged_once_it_is_durable(
    settled: Lab, standby: Standby
) -> None:
    await standby.lose()
    submitting = asyncio.ensure_future(settled.submit_all([settled.spec()]))
    await standby.cancel_wait()
    await standby.waiting("pg_logical_emit_message")
    assert not submitting.done()
    await standby.forget()
    (answer,) = await submitting
    assert answer.created
    assert await settled.count("tasks") == 2


async def test_a_batch_that_may_be_lost_is_not_acknowledged(settled: Lab, standby: Standby) -> None:
    await standby.lose()

    async def submit() -> list[int]:
        specs = [settled.spec(), settled.spec()]
        batch = await settled.components.submitter.submit_batch(settled.client, specs, key="k")
        return batch.ids

    for _ in range(2):
        submitting = asyncio.ensure_future(submit())
        await standby.cancel_waits_until(submitting)
        with pytest.raises(Unavailable):
            await submitting
    await standby.forget()
    assert len(await submit()) == 2
    assert await settled.count("tasks") == 3


async def test_a_shape_that_may_be_lost_is_not_cached(lab: Lab, standby: Standby) -> None:
    await standby.lose()
    for _ in range(2):
        learning = asyncio.ensure_future(lab.submit_all([lab.spec()]))
        await standby.cancel_waits_until(learning)
        with pytest.raises(Unavailable):
            await learning
    await standby.forget()
    assert await lab.submit()


async def test_a_cancel_that_may_be_lost_is_not_acknowledged(lab: Lab, standby: Standby) -> None:
    task = await lab.submit()
    await standby.lose()
    for _ in range(2):  # The second finds that the task has ended.
        cancelling = asyncio.ensure_future(lab.components.canceller.cancel(lab.client, [task]))
        await standby.cancel_waits_until(cancelling)
        with pytest.raises(Unavailable):
            await cancelling
    await standby.forget()
    assert await lab.components.canceller.cancel(lab.client, [task]) == {}


async def test_a_repeated_report_that_may_be_lost_is_not_accepted(
    lab: Lab, standby: Standby
) -> None:
    node = await lab.node()
    ref = await lab.run(node)
    await standby.lose()
    for _ in range(2):
        reporting = asyncio.ensure_future(node.report(ref))
        await standby.cancel_wait()
        with pytest.raises(Unavailable):
            await reporting
    await standby.forget()
    assert await node.report(ref)


async def test_a_loss_that_may_itself_be_lost_is_not_sent_to_the_agent(
    lab: Lab, standby: Standby
) -> None:
    """The agent would forget the attempt, which a failover gives back to it."""
    node = await lab.node()
    ref = await lab.run(node)
    await standby.lose()
    reporting = asyncio.ensure_future(node.report(ref))
    await standby.cancel_wait()
    with pytest.raises(Unavailable):
        await reporting

    beat = wire.Heartbeat(incarnation=node.incarnation, held=[ref])
    for ask in (
        lambda: node.poll(ref),
        lambda: lab.components.polls.stops_for(node.id, beat),
    ):
        asking = asyncio.ensure_future(ask())
        await standby.cancel_wait()
        with pytest.raises(Unavailable):
            await asking
    await standby.forget()
    assert [stop.why for stop in await node.stops(ref)] == ["lost"]


async def test_a_report_is_not_called_stale_before_that_is_durable(
    lab: Lab, standby: Standby
) -> None:
    node = await lab.node()
    ref = await lab.run(node)
    stale = wire.AttemptRef(ref.task, ref.attempt, ref.token + 1)
    await standby.lose()
    reporting = asyncio.ensure_future(node.report(stale))
    await standby.cancel_wait()
    with pytest.raises(Unavailable):
        await reporting
    await standby.forget()
    assert not await node.report(stale)
