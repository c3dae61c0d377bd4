"""A subqueue is read on from where the last round left it, and nothing is passed over by that."""

import random
from typing import NamedTuple

import pytest

from duly.errors import Unavailable
from duly.model.task import Outcome
from duly.store import tasks, waiting
from tests.server.chaos import Chaos
from tests.server.lab import seconds


class Read(NamedTuple):
    cursors: list[int | None]
    tasks: int


@pytest.fixture
def reads(monkeypatch):
    """From which tasks on subqueues were read, and how many tasks of them, by each statement."""
    found = []
    read = waiting.read_heads

    async def watched(conn, lines):
        heads = await read(conn, lines)
        found.append(Read([line.first and line.first.id for line in lines.values()], len(heads)))
        return heads

    monkeypatch.setattr(waiting, "read_heads", watched)
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


async def test_a_subqueue_is_read_on_from_where_it_was_left(lab, node, reads):
    rest = await left(lab, node)
    assert [await next_of(lab, node) for _ in rest] == [{rest[0]}, {rest[1]}, {rest[2]}]
    assert [read.cursors for read in reads] == [[None], [rest[0]], [rest[1]], [rest[2]]]


async def test_what_comes_later_changes_nothing_about_that(lab, node, reads):
    rest = await left(lab, node)
    later = await lab.submit(cpu=1, delay_tolerance="1h")
    found = [await next_of(lab, node) for _ in range(4)]
    assert found == [{rest[0]}, {rest[1]}, {rest[2]}, {later}]
    assert reads[1].cursors == [rest[0]]


async def test_a_count_begins_anew(lab, node, reads):
    rest = await left(lab, node)
    lab.parts.resource_manager._prioritizer.recount()
    assert await next_of(lab, node) == {rest[0]}
    assert reads[-1].cursors == [None]


async def test_who_goes_before_it_does(lab, node):
    rest = await left(lab, node)
    at = (await lab.live(rest[0]))["start_by"]
    first = await lab.submit(cpu=1, priority=1)
    assert (await lab.live(first))["start_by"] == at
    assert await next_of(lab, node) == {first}
    pressing = await lab.submit(cpu=1, delay_tolerance="1s")
    assert await next_of(lab, node) == {pressing}
    assert await next_of(lab, node) == {rest[0]}


@pytest.mark.parametrize("is_known", [False, True])
async def test_whose_cap_is_shorter_goes_before_it(lab, node, is_known):
    (*_, last) = await left(lab, node)
    brief = await lab.submit(cpu=1, execution_cap="60s")
    assert (await lab.live(brief))["start_by"] == (await lab.live(last))["start_by"]
    if not is_known:
        lab.parts.resource_manager._prioritizer.recount()
    assert await next_of(lab, node) == {brief}


async def test_who_was_moved_up_goes_first(lab, node):
    rest = await left(lab, node)
    await lab.parts.updater.update(lab.client, rest[2], {"priority": 1})
    assert await next_of(lab, node) == {rest[2]}
    assert await next_of(lab, node) == {rest[0]}


async def test_who_has_changed_its_line_starts_once(lab):
    node = await lab.node(cpu=2)
    tasks = await submit(lab, 6)
    await lab.schedule()
    assert await lab.run_on(node) == set(tasks[:2])
    # It is the first of another subqueue now, and the cursor of the one that it was in.
    changes = {"resources": {"cpu": 1, "memory_mb": 103}}
    await lab.parts.updater.update(lab.client, tasks[2], changes)
    assert await next_of(lab, node) == set(tasks[2:4])
    assert await next_of(lab, node) == set(tasks[4:])


async def test_who_has_gone_takes_nobodys_place(lab, node):
    rest = await left(lab, node)
    await lab.parts.canceller.cancel(lab.client, [rest[0]])
    # It is tried in vain, and then the line is read again: nothing waits for another reason to.
    assert await next_of(lab, node) == {rest[1]}
    assert await next_of(lab, node) == {rest[2]}
    assert await next_of(lab, node) == set()


async def test_who_was_stored_and_has_gone_takes_nobodys_place(lab, node):
    running = await lab.run(node, cpu=1)
    gone = await lab.submit(cpu=1)
    behind = await lab.submit(cpu=1, by=lab.stranger)
    await lab.parts.canceller.cancel(lab.client, [gone])
    await node.report(running, Outcome.SUCCEEDED)
    while await lab.parts.resource_manager.tick():
        pass
    assert await lab.run_on(node) == {behind}


async def test_who_goes_just_before_its_lease_takes_nobodys_place(lab, node, monkeypatch):
    gone, behind = await submit(lab, 2)
    manager = lab.parts.resource_manager
    lease = manager._lease

    async def late(*arguments):
        monkeypatch.undo()
        await lab.parts.canceller.cancel(lab.client, [gone])
        return await lease(*arguments)

    monkeypatch.setattr(manager, "_lease", late)
    while await manager.tick():
        pass
    assert await lab.run_on(node) == {behind}


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


async def test_of_a_line_that_may_start_little_little_is_read(lab, reads):
    node = await lab.node(cpu=64)
    limited = {"concurrency": {"key": "k", "limit": 1}}
    await lab.submit_all([lab.spec(cpu=1, **limited) for _ in range(64)])
    lab.parts.resource_manager._prioritizer.recount()
    assert len(await next_of(lab, node)) == 1
    assert max(read.tasks for read in reads) <= 2


async def test_one_whose_commit_was_not_answered_goes_where_it_belongs(lab, node, monkeypatch):
    rest = await left(lab, node)
    insert = tasks.insert

    async def lost(*arguments, **options):
        await insert(*arguments, **options)
        raise Unavailable("The answer was lost.")

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "insert", lost)
        first = await lab.submit(cpu=1, priority=1)
        with pytest.raises(Unavailable):
            await lab.parts.submitter.submit_batch(lab.client, [lab.spec(cpu=1, priority=2)])
    assert await next_of(lab, node) == {first}
    assert await next_of(lab, node) == {rest[0]}


async def test_one_that_was_paused_goes_by_its_new_time(lab, node):
    asked = [lab.spec(cpu=1, delay_tolerance=f"{seconds}s") for seconds in (10, 20, 20, 60)]
    (_, second, third, _) = [one.id for one in await lab.submit_all(asked)]
    prioritizer = lab.parts.resource_manager._prioritizer
    prioritizer.recount()
    await lab.schedule()
    # As after a count that took long.
    prioritizer._pace._next_at = lab.clock.monotonic() + 5
    await lab.parts.pauser.pause(lab.client, [second])
    await lab.clock.move(seconds(1))
    await lab.parts.pauser.resume(lab.client, [second])
    assert (await lab.live(second))["start_by"] > (await lab.live(third))["start_by"]
    assert await next_of(lab, node) == {third}


async def test_what_came_while_nobody_led_is_seen(lab, node):
    rest = await left(lab, node)
    prioritizer = lab.parts.resource_manager._prioritizer
    prioritizer._pace._next_at = lab.clock.monotonic() + 60
    await lab.clock.move(seconds(5))
    await node.heartbeat()
    assert lab.parts.cluster_manager.term is None
    first = await lab.submit(cpu=1, delay_tolerance="1s")
    assert await next_of(lab, node) == {first}
    assert await next_of(lab, node) == {rest[0]}


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_those_run_who_come_first(lab, seed):
    dice = random.Random(seed)
    room = dice.choice((1, 2, 3))
    chaos = Chaos(lab, await lab.node(cpu=room), room, dice)
    for _ in range(60):
        await chaos.step()
        chosen = await chaos.chosen()
        rounds = 0
        while await lab.parts.resource_manager.tick():
            rounds += 1
            assert rounds < 30
        assert {row["id"] for row in await chaos.rows("running")} == chosen
