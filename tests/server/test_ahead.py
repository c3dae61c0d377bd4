"""What a round has read and left is remembered, and never told from what is there now."""

import pytest

from duly.model.task import Outcome
from duly.store import leases
from tests.server.lab import seconds


@pytest.fixture
def reads(monkeypatch):
    """How many lines were read, for each look at them."""
    found = []
    read = leases.read_heads

    async def watched(conn, lines):
        found.append(len(lines))
        return await read(conn, lines)

    monkeypatch.setattr(leases, "read_heads", watched)
    return found


@pytest.fixture
async def node(lab):
    return await lab.node(cpu=1)


async def next_of(lab, node):
    """End what runs, and return what runs then."""
    for ref in await node.starts():
        await node.report(ref, Outcome.SUCCEEDED)
    await lab.parts.cluster_manager.tick()
    while await lab.parts.resource_manager.tick():
        pass
    return await lab.run_on(node)


async def submit(lab, count, by=None):
    """Submit tasks of which a round knows no more than their line."""
    answers = await lab.submit_all([lab.spec(cpu=1) for _ in range(count)], by=by)
    lab.parts.resource_manager._prioritizer.recount()
    return [answer.id for answer in answers]


async def left(lab, node):
    """Let one of four tasks run, and return the others; a round has read one of them."""
    tasks = await submit(lab, 4)
    await lab.schedule()
    (running,) = await lab.run_on(node)
    return [task for task in tasks if task != running]


async def test_what_was_left_is_not_read_again(lab, node, reads):
    rest = await left(lab, node)
    before = len(reads)
    assert await next_of(lab, node) == {rest[0]}
    assert len(reads) == before
    assert [await next_of(lab, node) for _ in rest] == [{rest[1]}, {rest[2]}, set()]


async def test_of_many_lines_only_those_are_read_of_which_nothing_is_known(lab, node, reads):
    ours, theirs = await submit(lab, 2), await submit(lab, 2, by=lab.stranger)
    await lab.schedule()
    assert await lab.run_on(node) == {ours[0]}
    assert [await next_of(lab, node) for _ in range(3)] == [{ours[1]}, {theirs[0]}, {theirs[1]}]
    assert max(reads[1:]) == 1


async def test_what_comes_later_does_not_make_it_forget(lab, node, reads):
    rest = await left(lab, node)
    later = await lab.submit(cpu=1, delay_tolerance="1h")
    before = len(reads)
    assert await next_of(lab, node) == {rest[0]}
    assert len(reads) == before
    assert [await next_of(lab, node) for _ in rest] == [{rest[1]}, {rest[2]}, {later}]


async def test_who_goes_before_it_does(lab, node):
    rest = await left(lab, node)
    at = (await lab.live(rest[0]))["start_by"]
    first = await lab.submit(cpu=1, priority=1)
    assert (await lab.live(first))["start_by"] == at
    assert await next_of(lab, node) == {first}
    pressing = await lab.submit(cpu=1, delay_tolerance="1s")
    assert await next_of(lab, node) == {pressing}
    assert await next_of(lab, node) == {rest[0]}


async def test_who_was_moved_up_goes_first(lab, node):
    rest = await left(lab, node)
    await lab.parts.updater.update(lab.client, rest[2], {"priority": 1})
    assert await next_of(lab, node) == {rest[2]}
    assert await next_of(lab, node) == {rest[0]}


async def test_who_has_gone_takes_nobodys_place(lab, node):
    rest = await left(lab, node)
    await lab.parts.canceller.cancel(lab.client, [rest[0]])
    # It is tried in vain, and then the line is read again: nothing waits for another reason to.
    assert await next_of(lab, node) == {rest[1]}
    assert await next_of(lab, node) == {rest[2]}
    assert await next_of(lab, node) == set()


async def test_who_comes_back_is_not_passed_over(lab, node):
    rest = await left(lab, node)
    (ref,) = await node.starts()
    await node.report(ref, Outcome.FAILED)
    await lab.schedule()
    assert await lab.run_on(node) == {rest[0]}
    await lab.clock.move(seconds(10))
    await node.heartbeat()
    await lab.sweep()
    found = [await next_of(lab, node) for _ in range(4)]
    assert [len(tasks) for tasks in found] == [1, 1, 1, 0]
    assert set().union(*found) == {ref.task, *rest[1:]}


async def take_over(lab, parts):
    await lab.conn.execute("update terms set expires_at = duly.now()")
    await parts.cluster_manager.tick()
    await parts.cluster_manager.tick()
    assert parts.cluster_manager.term is not None


async def test_what_came_while_another_led_is_seen(lab, node):
    rest = await left(lab, node)
    other = lab.server()
    await take_over(lab, other)
    (first,) = await lab.submit_all([lab.spec(cpu=1, priority=1)], parts=other)
    await take_over(lab, lab.parts)
    assert await next_of(lab, node) == {first.id}
    assert await next_of(lab, node) == {rest[0]}
