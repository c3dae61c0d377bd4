"""What an agent should hold is read from where the last look ended, and now and then in full."""

from duly import wire
from tests.server.lab import seconds


async def test_a_look_begins_above_what_is_held(lab):
    node = await lab.node()
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    first = await lab.run(node)
    assert await node.starts(first) == []
    late = await lab.submit()
    await lab.schedule()
    # As if its commit had been delayed: its token had been drawn before the one that is held.
    await lab.conn.execute("update live set token = $2 where id = $1", late, earlier)
    lab.parts.polls.nudge(None)
    assert await node.starts(first) == []
    await lab.clock.move(seconds(1))
    assert [ref.task for ref in await node.starts(first)] == [late]


async def test_what_was_told_and_is_not_held_is_told_again(lab):
    node = await lab.node()
    first = await lab.run(node)
    await node.poll(first)
    second = await lab.submit()
    third = await lab.submit()
    await lab.schedule()
    told = {ref.task: ref for ref in await node.starts(first)}
    assert told.keys() == {second, third}
    assert await node.starts(first, told[third]) == [told[second]]
    assert await node.starts(first, told[third]) == [told[second]]
    assert await node.starts(first, told[second], told[third]) == []


async def test_what_is_held_no_longer_counts_is_seen_below_the_mark(lab):
    node = await lab.node()
    first, second = await lab.run(node), await lab.run(node)
    await node.poll(first, second)
    assert await node.report(first)
    assert await node.stops(first, second) == [wire.Stop(ref=first, why="lost")]


async def test_a_cancel_is_seen_below_the_mark(lab):
    node = await lab.node()
    first, second = await lab.run(node), await lab.run(node)
    await node.poll(first, second)
    await lab.parts.canceller.cancel(lab.client, [first.task])
    assert await node.stops(first, second) == [wire.Stop(ref=first, why="cancelled")]


async def test_numbers_that_no_attempt_can_have_are_passed_over(lab):
    node = await lab.node()
    first = await lab.run(node)
    await node.poll(first)
    odd = wire.AttemptRef(2**63, 1, -1)
    assert await node.stops(first, odd) == [wire.Stop(ref=odd, why="lost")]
