"""Expected attempts are read from the watermark on, and from time to time in full."""

from duly import wire
from tests.server.lab import seconds


async def test_a_read_begins_above_the_watermark(lab):
    node = await lab.node()
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    first = await lab.run(node)
    assert await node.starts(first) == []
    late = await lab.submit()
    await lab.schedule()
    # As if its commit had been delayed: its token is below the one that is held.
    await lab.conn.execute("update live set token = $2 where id = $1", late, earlier)
    lab.components.polls.nudge(None)
    assert await node.starts(first) == []
    await lab.clock.move(seconds(1))
    assert [ref.task for ref in await node.starts(first)] == [late]


async def test_an_attempt_that_was_delivered_and_is_not_held_is_delivered_again(lab):
    node = await lab.node()
    first = await lab.run(node)
    await node.poll(first)
    second = await lab.submit()
    third = await lab.submit()
    await lab.schedule()
    delivered = {ref.task: ref for ref in await node.starts(first)}
    assert delivered.keys() == {second, third}
    assert await node.starts(first, delivered[third]) == [delivered[second]]
    assert await node.starts(first, delivered[third]) == [delivered[second]]
    assert await node.starts(first, delivered[second], delivered[third]) == []


async def test_an_attempt_that_has_ended_is_noticed_below_the_watermark(lab):
    node = await lab.node()
    first, second = await lab.run(node), await lab.run(node)
    await node.poll(first, second)
    assert await node.report(first)
    assert await node.stops(first, second) == [wire.Stop(ref=first, why="lost")]


async def test_a_cancel_is_noticed_below_the_watermark(lab):
    node = await lab.node()
    first, second = await lab.run(node), await lab.run(node)
    await node.poll(first, second)
    await lab.components.canceller.cancel(lab.client, [first.task])
    assert await node.stops(first, second) == [wire.Stop(ref=first, why="cancelled")]


async def test_refs_with_impossible_numbers_are_lost(lab):
    node = await lab.node()
    first = await lab.run(node)
    await node.poll(first)
    odd = wire.AttemptRef(2**63, 1, -1)
    assert await node.stops(first, odd) == [wire.Stop(ref=odd, why="lost")]
