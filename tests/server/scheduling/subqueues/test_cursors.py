"""A round reads a subqueue from its cursor, and misses no task by that."""

import random
from typing import NamedTuple

import pytest

from duly.config import SchedulingSettings, Settings
from duly.errors import Unavailable
from duly.model.task import Outcome
from duly.store.tasks import subqueues, tasks
from tests.server.chaos import Chaos
from tests.server.lab import seconds


class Read(NamedTuple):
    cursors: list[int | None]
    tasks: int


@pytest.fixture
def settings():
    """Tasks keep their queue when they fail, so that rank alone orders them."""
    return Settings(scheduling=SchedulingSettings(promote_retries=False))


@pytest.fixture
def reads(monkeypatch):
    """Return the cursors and the number of tasks of every read of subqueues."""
    reads = []
    read_heads = subqueues.read_heads

    async def recording(conn, requests):
        heads = await read_heads(conn, requests)
        cursors = [request.first and request.first.id for request in requests.values()]
        reads.append(Read(cursors, len(heads)))
        return heads

    monkeypatch.setattr(subqueues, "read_heads", recording)
    return reads


@pytest.fixture
async def node(lab):
    return await lab.node(cpu=1)


async def finish_and_schedule(lab, node):
    """Finish the running tasks, and return those that run next."""
    for ref in await node.starts():
        await node.report(ref, Outcome.SUCCEEDED)
    await lab.components.cluster_manager.tick()
    while await lab.components.resource_manager.tick():
        pass
    return await lab.run_on(node)


async def submit(lab, count, by=None):
    """Submit tasks that are not cached, so that a round reads their subqueue."""
    answers = await lab.submit_all([lab.spec(cpu=1) for _ in range(count)], by=by)
    lab.components.resource_manager._prioritizer.request_recount()
    return [answer.id for answer in answers]


async def start_one_of_four(lab, node):
    """Start one of four tasks, and return the others; the round has read one of them."""
    tasks = await submit(lab, 4)
    await lab.schedule()
    (running,) = await lab.run_on(node)
    return [task for task in tasks if task != running]


async def test_a_subqueue_is_read_on_from_where_it_was_left(lab, node, reads):
    rest = await start_one_of_four(lab, node)
    assert [await finish_and_schedule(lab, node) for _ in rest] == [{rest[0]}, {rest[1]}, {rest[2]}]
    assert [read.cursors for read in reads] == [[None], [rest[0]], [rest[1]], [rest[2]]]


async def test_a_task_that_ranks_later_leaves_the_cursor_valid(lab, node, reads):
    rest = await start_one_of_four(lab, node)
    later = await lab.submit(cpu=1, delay_tolerance="1h")
    found = [await finish_and_schedule(lab, node) for _ in range(4)]
    assert found == [{rest[0]}, {rest[1]}, {rest[2]}, {later}]
    assert reads[1].cursors == [rest[0]]


async def test_a_recount_clears_the_cursors(lab, node, reads):
    rest = await start_one_of_four(lab, node)
    lab.components.resource_manager._prioritizer.request_recount()
    assert await finish_and_schedule(lab, node) == {rest[0]}
    assert reads[-1].cursors == [None]


async def test_a_task_that_ranks_before_the_cursor_starts_first(lab, node):
    rest = await start_one_of_four(lab, node)
    at = (await lab.live(rest[0]))["start_by"]
    first = await lab.submit(cpu=1, priority=1)
    assert (await lab.live(first))["start_by"] == at
    assert await finish_and_schedule(lab, node) == {first}
    pressing = await lab.submit(cpu=1, delay_tolerance="1s")
    assert await finish_and_schedule(lab, node) == {pressing}
    assert await finish_and_schedule(lab, node) == {rest[0]}


@pytest.mark.parametrize("is_cached", [False, True])
async def test_a_task_with_a_shorter_cap_than_the_cursor_starts_first(lab, node, is_cached):
    (*_, last) = await start_one_of_four(lab, node)
    brief = await lab.submit(cpu=1, execution_cap="60s")
    assert (await lab.live(brief))["start_by"] == (await lab.live(last))["start_by"]
    if not is_cached:
        lab.components.resource_manager._prioritizer.request_recount()
    assert await finish_and_schedule(lab, node) == {brief}


async def test_a_task_whose_priority_was_raised_starts_first(lab, node):
    rest = await start_one_of_four(lab, node)
    await lab.components.updater.update(lab.client, rest[2], {"priority": 1})
    assert await finish_and_schedule(lab, node) == {rest[2]}
    assert await finish_and_schedule(lab, node) == {rest[0]}


async def test_a_task_that_has_changed_its_subqueue_starts_once(lab):
    node = await lab.node(cpu=2)
    tasks = await submit(lab, 6)
    await lab.schedule()
    assert await lab.run_on(node) == set(tasks[:2])
    # It is the first of another subqueue now, and the cursor of the one that it was in.
    changes = {"resources": {"cpu": 1, "memory_mb": 103}}
    await lab.components.updater.update(lab.client, tasks[2], changes)
    assert await finish_and_schedule(lab, node) == set(tasks[2:4])
    assert await finish_and_schedule(lab, node) == set(tasks[4:])


async def test_a_cancelled_task_keeps_no_other_from_starting(lab, node):
    rest = await start_one_of_four(lab, node)
    await lab.components.canceller.cancel(lab.client, [rest[0]])
    # Its lease fails, and the subqueue is read again at once, without another wake-up.
    assert await finish_and_schedule(lab, node) == {rest[1]}
    assert await finish_and_schedule(lab, node) == {rest[2]}
    assert await finish_and_schedule(lab, node) == set()


async def test_a_cached_task_that_was_cancelled_keeps_no_other_from_starting(lab, node):
    running = await lab.run(node, cpu=1)
    gone = await lab.submit(cpu=1)
    behind = await lab.submit(cpu=1, by=lab.stranger)
    await lab.components.canceller.cancel(lab.client, [gone])
    await node.report(running, Outcome.SUCCEEDED)
    while await lab.components.resource_manager.tick():
        pass
    assert await lab.run_on(node) == {behind}


async def test_a_task_cancelled_just_before_its_lease_keeps_no_other_from_starting(
    lab, node, monkeypatch
):
    gone, behind = await submit(lab, 2)
    manager = lab.components.resource_manager
    lease = manager._lease

    async def late(*arguments):
        monkeypatch.undo()
        await lab.components.canceller.cancel(lab.client, [gone])
        return await lease(*arguments)

    monkeypatch.setattr(manager, "_lease", late)
    while await manager.tick():
        pass
    assert await lab.run_on(node) == {behind}


async def test_a_retried_task_is_not_skipped(lab, node):
    rest = await start_one_of_four(lab, node)
    (ref,) = await node.starts()
    await node.report(ref, Outcome.FAILED)
    await lab.schedule()
    assert await lab.run_on(node) == {rest[0]}
    await lab.clock.move(seconds(10))
    await node.heartbeat()
    await lab.sweep()
    found = [await finish_and_schedule(lab, node) for _ in range(4)]
    assert [len(tasks) for tasks in found] == [1, 1, 1, 0]
    assert set().union(*found) == {ref.task, *rest[1:]}


async def take_over(lab, components):
    await lab.conn.execute("update terms set expires_at = duly.now()")
    await components.cluster_manager.tick()
    await components.cluster_manager.tick()
    assert components.cluster_manager.term is not None


async def test_a_task_stored_while_another_server_led_is_found(lab, node):
    rest = await start_one_of_four(lab, node)
    other = lab.server()
    await take_over(lab, other)
    (first,) = await lab.submit_all([lab.spec(cpu=1, priority=1)], components=other)
    await take_over(lab, lab.components)
    assert await finish_and_schedule(lab, node) == {first.id}
    assert await finish_and_schedule(lab, node) == {rest[0]}


async def test_little_is_read_of_a_subqueue_that_may_start_little(lab, reads):
    node = await lab.node(cpu=64)
    limited = {"concurrency": {"key": "k", "limit": 1}}
    await lab.submit_all([lab.spec(cpu=1, **limited) for _ in range(64)])
    lab.components.resource_manager._prioritizer.request_recount()
    assert len(await finish_and_schedule(lab, node)) == 1
    assert max(read.tasks for read in reads) <= 2


async def test_a_task_whose_commit_had_no_response_starts_by_its_rank(lab, node, monkeypatch):
    rest = await start_one_of_four(lab, node)
    insert = tasks.insert

    async def lost(*arguments, **options):
        await insert(*arguments, **options)
        raise Unavailable("The response was lost.")

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "insert", lost)
        first = await lab.submit(cpu=1, priority=1)
        with pytest.raises(Unavailable):
            await lab.components.submitter.submit_batch(lab.client, [lab.spec(cpu=1, priority=2)])
    assert await finish_and_schedule(lab, node) == {first}
    assert await finish_and_schedule(lab, node) == {rest[0]}


async def test_a_resumed_task_is_ordered_by_its_new_start_by(lab, node):
    specs = [lab.spec(cpu=1, delay_tolerance=f"{seconds}s") for seconds in (10, 20, 20, 60)]
    (_, second, third, _) = [answer.id for answer in await lab.submit_all(specs)]
    prioritizer = lab.components.resource_manager._prioritizer
    prioritizer.request_recount()
    await lab.schedule()
    # As after a slow recount.
    prioritizer._recount_cycle._next_at = lab.clock.monotonic() + 5
    await lab.components.pauser.pause(lab.client, [second])
    await lab.clock.move(seconds(1))
    await lab.components.pauser.resume(lab.client, [second])
    assert (await lab.live(second))["start_by"] > (await lab.live(third))["start_by"]
    assert await finish_and_schedule(lab, node) == {third}


async def test_a_task_stored_while_no_server_led_is_found(lab, node):
    rest = await start_one_of_four(lab, node)
    prioritizer = lab.components.resource_manager._prioritizer
    prioritizer._recount_cycle._next_at = lab.clock.monotonic() + 60
    await lab.clock.move(seconds(5))
    await node.heartbeat()
    assert lab.components.cluster_manager.term is None
    first = await lab.submit(cpu=1, delay_tolerance="1s")
    assert await finish_and_schedule(lab, node) == {first}
    assert await finish_and_schedule(lab, node) == {rest[0]}


@pytest.mark.parametrize("seed", range(12))
async def test_the_tasks_that_rank_first_run_whatever_happens(lab, seed):
    dice = random.Random(seed)
    room = dice.choice((1, 2, 3))
    chaos = Chaos(lab, await lab.node(cpu=room), room, dice, [lab.client])
    for _ in range(60):
        await chaos.step()
        chosen = await chaos.chosen()
        rounds = 0
        while await lab.components.resource_manager.tick():
            rounds += 1
            assert rounds < 30
        assert {row["id"] for row in await chaos.rows("running")} == chosen
