"""What runs is remembered from round to round, and made sure of; limits hold all the same."""

import pytest

from duly.errors import Unavailable
from duly.server.roster import Roster
from duly.store import stock
from duly.store.servers import Term
from tests.server.lab import seconds


async def late_lease(lab, node, task, *, token):
    """Let a lease take effect whose token was drawn long ago."""
    await lab.conn.execute(
        "update live set status = 'running', attempt = 1, token = $2, node_id = $3, "
        "incarnation_id = $4, leased_at = duly.now(), kill_at = duly.now() + interval '1 h' "
        "where id = $1",
        task,
        token,
        node.id,
        node.incarnation,
    )


@pytest.fixture(autouse=True)
def every_count_is_slow(lab):
    lab.parts.resource_manager._roster = Roster(seconds(30), quick=seconds(-1), patience=1)


async def test_what_ends_makes_room_and_what_begins_takes_it(lab):
    node = await lab.node(cpu=2)
    first, second = await lab.run(node, cpu=1), await lab.run(node, cpu=1)
    third, fourth = await lab.submit(cpu=1), await lab.submit(cpu=1)
    await lab.schedule()
    assert await lab.run_on(node) == {first.task, second.task}
    await node.report(first)
    await lab.schedule()
    assert await lab.run_on(node) == {second.task, third}
    await node.report(second)
    await lab.schedule()
    assert await lab.run_on(node) == {third, fourth}


async def remembering(lab):
    """Return a roster that remembers what runs, and a way to ask it."""
    roster, term = (
        Roster(seconds(30), quick=seconds(-1), patience=1),
        lab.parts.cluster_manager.term,
    )

    async def count():
        with roster.round(term):
            return sum(one.times for one in (await roster.read(lab.conn)).in_use)

    await count()
    await count()
    return roster, count


async def test_one_count_that_takes_long_is_no_reason_to_remember(lab, monkeypatch):
    await lab.run(await lab.node())
    roster, counted = Roster(seconds(30), quick=seconds(-1), patience=3), []
    read = stock.read_stock

    async def noting(*arguments, running=True, **options):
        counted.append(running)
        return await read(*arguments, running=running, **options)

    monkeypatch.setattr(stock, "read_stock", noting)
    with roster.round(lab.parts.cluster_manager.term):
        for _ in range(2):
            await roster.read(lab.conn)
        roster._quick = 60.0
        await roster.read(lab.conn)
        roster._quick = -60.0
        for _ in range(5):
            await roster.read(lab.conn)
    assert counted == [True] * 6 + [False] * 2


async def test_a_node_that_joins_is_read_in_full(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    old = await lab.node()
    await lab.run(old)
    _, count = await remembering(lab)
    new = await lab.node()
    await late_lease(lab, new, await lab.submit(), token=earlier)
    assert await count() == 2


async def test_a_lease_that_takes_effect_late_is_seen_within_a_second(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    node = await lab.node()
    await lab.run(node)
    _, count = await remembering(lab)
    await late_lease(lab, node, await lab.submit(), token=earlier)
    assert await count() == 1
    await lab.clock.move(seconds(1))
    assert await count() == 2


async def test_after_a_round_that_failed_nothing_that_is_remembered_counts(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    node = await lab.node()
    await lab.run(node)
    roster, count = await remembering(lab)
    with pytest.raises(Unavailable), roster.round(lab.parts.cluster_manager.term):
        raise Unavailable("The answer to a lease was lost.")
    assert await count() == 1
    await late_lease(lab, node, await lab.submit(), token=earlier)
    assert await count() == 2


async def test_a_new_term_begins_with_everything(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    node = await lab.node()
    await lab.run(node)
    roster, count = await remembering(lab)
    await late_lease(lab, node, await lab.submit(), token=earlier)
    assert await count() == 1
    with roster.round(Term(number=99, server=1)):
        assert [one.times for one in (await roster.read(lab.conn)).in_use] == [2]
