"""The index of running attempts is exact, although most rounds read only what has changed."""

import pytest

from duly.errors import Unavailable
from duly.server.scheduling.running_index import RunningIndex
from duly.store.fleet import fleet_snapshot
from duly.store.fleet.servers import Term
from tests.server.lab import seconds


async def late_lease(lab, node, task, *, token):
    """Make a lease take effect whose token was drawn long ago."""
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
    lab.components.resource_manager._running_index = RunningIndex(
        seconds(30), quick_count=seconds(-1), max_slow_counts=1
    )


async def test_ended_attempts_free_capacity_and_new_ones_use_it(lab):
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


async def index_in_use(lab):
    """Return an index that no longer counts, and a function that reads its total."""
    running_index = RunningIndex(seconds(30), quick_count=seconds(-1), max_slow_counts=1)
    term = lab.components.cluster_manager.term

    async def count():
        with running_index.round(term):
            return sum(in_use.times for in_use in (await running_index.read(lab.conn)).in_use)

    await count()
    await count()
    return running_index, count


async def test_the_index_is_used_only_after_several_slow_counts_in_a_row(lab, monkeypatch):
    await lab.run(await lab.node())
    running_index = RunningIndex(seconds(30), quick_count=seconds(-1), max_slow_counts=3)
    counted = []
    read = fleet_snapshot.read_snapshot

    async def recording(*arguments, running=True, **options):
        counted.append(running)
        return await read(*arguments, running=running, **options)

    monkeypatch.setattr(fleet_snapshot, "read_snapshot", recording)
    with running_index.round(lab.components.cluster_manager.term):
        for _ in range(2):
            await running_index.read(lab.conn)
        running_index._quick_count = 60.0
        await running_index.read(lab.conn)
        running_index._quick_count = -60.0
        for _ in range(5):
            await running_index.read(lab.conn)
    assert counted == [True] * 6 + [False] * 2


async def test_a_node_that_joins_is_read_in_full(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    old = await lab.node()
    await lab.run(old)
    _, count = await index_in_use(lab)
    new = await lab.node()
    await late_lease(lab, new, await lab.submit(), token=earlier)
    assert await count() == 2


async def test_a_lease_that_takes_effect_late_is_seen_within_a_second(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    node = await lab.node()
    await lab.run(node)
    _, count = await index_in_use(lab)
    await late_lease(lab, node, await lab.submit(), token=earlier)
    assert await count() == 1
    await lab.clock.move(seconds(1))
    assert await count() == 2


async def test_the_index_is_not_used_after_a_failed_round(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    node = await lab.node()
    await lab.run(node)
    running_index, count = await index_in_use(lab)
    with pytest.raises(Unavailable), running_index.round(lab.components.cluster_manager.term):
        raise Unavailable("The response to a lease was lost.")
    assert await count() == 1
    await late_lease(lab, node, await lab.submit(), token=earlier)
    assert await count() == 2


async def test_a_new_term_begins_with_a_full_count(lab):
    earlier = await lab.conn.fetchval("select nextval('tokens')")
    node = await lab.node()
    await lab.run(node)
    running_index, count = await index_in_use(lab)
    await late_lease(lab, node, await lab.submit(), token=earlier)
    assert await count() == 1
    with running_index.round(Term(number=99, server=1)):
        assert [in_use.times for in_use in (await running_index.read(lab.conn)).in_use] == [2]
