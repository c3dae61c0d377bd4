import asyncio

import pytest

from duly.errors import Conflict, Unavailable
from duly.server.sequencer import (
    EPOCH,
    MARK_AHEAD_SECONDS,
    SERVER_BITS,
    TICK_BITS,
    TICKS_PER_SECOND,
    Sequencer,
)
from tests.server.lab import seconds

LOW_BITS = 31


async def started(lab):
    components = lab.server()
    await components.cluster_manager.tick()
    return components


def second_of(task):
    return task >> LOW_BITS


def number_of(task):
    return (task >> TICK_BITS) & ((1 << SERVER_BITS) - 1)


async def test_servers_have_numbers_of_their_own(lab):
    others = await asyncio.gather(*(started(lab) for _ in range(4)))
    numbers = [components.cluster_manager.number for components in (lab.components, *others)]
    assert sorted(numbers) == [0, 1, 2, 3, 4]


async def test_a_server_without_a_number_admits_nothing(lab):
    components = lab.server()
    with pytest.raises(Conflict):
        _ = components.cluster_manager.number
    with pytest.raises(Unavailable):
        await components.submitter.submit(lab.client, lab.spec())


async def test_an_id_says_when_and_by_whom_it_was_minted(lab):
    other = await started(lab)
    (answer,) = await lab.submit_all([lab.spec()], components=other)
    assert second_of(answer.id) == int((lab.clock.now - EPOCH).total_seconds())
    assert number_of(answer.id) == other.cluster_manager.number


async def test_a_silent_servers_number_is_leased_again_above_everything_it_may_have_minted(lab):
    other = await started(lab)
    number = other.cluster_manager.number
    mark = await lab.conn.fetchval("select high_water from servers where number = $1", number)
    await lab.clock.move(seconds(10.5))
    await lab.components.cluster_manager.tick()
    heir = await started(lab)
    assert heir.cluster_manager.number == number
    (answer,) = await lab.submit_all([lab.spec()], components=heir)
    assert second_of(answer.id) > mark
    assert number_of(answer.id) == number


async def test_a_number_is_kept_as_long_as_it_is_renewed(lab):
    other = await started(lab)
    for _ in range(4):
        await lab.clock.move(seconds(9))
        await lab.components.cluster_manager.tick()
        await other.cluster_manager.tick()
    assert (await started(lab)).cluster_manager.number == 2


async def test_a_server_whose_number_has_passed_on_takes_another(lab):
    other = await started(lab)
    await lab.clock.move(seconds(11))
    await lab.components.cluster_manager.tick()
    heir = await started(lab)
    assert heir.cluster_manager.number == other.cluster_manager.number == 1
    await other.cluster_manager.tick()
    assert other.cluster_manager.number == 2
    mine, theirs = [
        (await lab.submit_all([lab.spec()], components=components))[0].id
        for components in (other, heir)
    ]
    assert (number_of(mine), number_of(theirs)) == (2, 1)


async def test_a_number_that_was_let_go_is_free_at_once(lab):
    other = await started(lab)
    (last,) = await lab.submit_all([lab.spec()], components=other)
    await other.cluster_manager.stop()
    heir = await started(lab)
    assert heir.cluster_manager.number == other.cluster_manager.number
    (first,) = await lab.submit_all([lab.spec()], components=heir)
    assert first.id > last.id


async def test_ids_rise_although_the_clock_goes_back(lab):
    before = await lab.submit()
    await lab.clock.move(seconds(-3600))
    await lab.components.cluster_manager.tick()
    assert await lab.submit() > before


@pytest.fixture
def sequencer(lab):
    sequencer = Sequencer()
    sequencer.begin(5, above=0, now=lab.clock.now)
    return sequencer


async def test_nothing_is_minted_beyond_the_stored_mark(lab, sequencer):
    with pytest.raises(Unavailable):
        sequencer.mint()
    mark = sequencer.next_mark
    sequencer.extend(mark, lab.clock.now)
    await lab.clock.move(seconds(MARK_AHEAD_SECONDS))
    assert second_of(sequencer.mint()) == mark
    await lab.clock.move(seconds(1))
    with pytest.raises(Unavailable):
        sequencer.mint()


async def test_a_burst_borrows_from_the_next_second(lab, sequencer):
    sequencer.extend(sequencer.next_mark, lab.clock.now)
    many = TICKS_PER_SECOND + 5
    before = sequencer.mint()
    ids = sequencer.mint_many(many)
    assert len(set(ids)) == many
    assert [before, *ids] == sorted([before, *ids])
    assert second_of(ids[-1]) > second_of(before)
    assert {number_of(task) for task in ids} == {5}
