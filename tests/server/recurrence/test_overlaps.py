"""Overlap policies: a schedule fires while earlier occurrences are open."""

import pytest

from duly.errors import Conflict
from duly.model.task import Outcome
from duly.server.recurrence import occurrence_admission
from tests.server.calendar import Calendar
from tests.server.lab import seconds
from tests.server.recurrence.test_schedule_limits import grant, tight

__all__ = ["tight"]
CHAIN = {"a": [], "b": ["a"]}
DIAMOND = {"a": [], "b": [], "c": ["a", "b"]}


@pytest.fixture
def calendar(lab):
    return Calendar(lab)


async def begun(lab, node):
    """Return the tasks that begin on a node now."""
    await lab.sweep()
    for _ in range(2):
        await lab.schedule()
    return {one.task: one for one in await node.starts()}


async def finish(lab, node, task, outcome=Outcome.SUCCEEDED):
    assert await node.report((await begun(lab, node))[task], outcome)
    await lab.sweep()


async def test_overlap_skip_runs_nothing_beside_an_open_occurrence(lab, calendar):
    schedule = await calendar.create(overlap="skip")
    node = await calendar.node()
    await calendar.go(1)
    (task,) = await calendar.tasks(schedule)
    ref = await lab.start(node, task)
    await calendar.go(2)
    assert await calendar.missed(schedule) == [(2, 1, "overlap")]
    await node.report(ref, Outcome.FAILED)
    await calendar.go(3)
    assert await calendar.ran(schedule) == [1]  # it comes back to be tried again
    await lab.components.canceller.cancel(lab.client, [task])
    await calendar.go(4)
    assert await calendar.ran(schedule) == [1, 4]


async def test_overlap_cancel_other_cancels_open_occurrences(lab, calendar):
    schedule = await calendar.create(overlap="cancel_other")
    node = await calendar.node()
    await calendar.go(1)
    (first,) = await calendar.tasks(schedule)
    await lab.start(node, first)
    await calendar.go(2)
    second = (await calendar.tasks(schedule))[-1]
    assert (await lab.live(first))["cancel_requested_at"] is not None
    await calendar.go(3)
    assert await lab.status(second) == "cancelled"
    assert await calendar.ran(schedule) == [1, 2, 3]


async def test_overlap_queue_runs_occurrences_one_after_the_other(lab, calendar):
    schedule = await calendar.create(overlap="queue")
    node = await calendar.node()
    await calendar.go(1)
    await calendar.go(2)
    first, second = await calendar.tasks(schedule)
    assert await lab.status(second) == "blocked"
    ref = (await begun(lab, node))[first]
    await node.report(ref)
    assert list(await begun(lab, node)) == [second]


async def test_a_queued_occurrence_does_not_start_between_two_attempts_of_the_one_before(
    lab, calendar
):
    schedule = await calendar.create(overlap="queue", task={"max_attempts": 2})
    node = await calendar.node()
    await calendar.go(1)
    (first,) = await calendar.tasks(schedule)
    await finish(lab, node, first, Outcome.FAILED)
    assert await lab.status(first) == "scheduled"  # until it is tried again
    await calendar.go(2)
    second = (await calendar.tasks(schedule))[-1]
    assert second not in await begun(lab, node)
    assert await lab.status(second) == "blocked"
    await calendar.go(2.9)
    await finish(lab, node, first, Outcome.FAILED)
    assert await lab.status(first) == "failed"  # which does not keep the next one from running
    assert list(await begun(lab, node)) == [second]


async def test_cancelling_a_queued_occurrence_lets_no_later_one_overtake(lab, calendar):
    schedule = await calendar.create(overlap="queue")
    node = await calendar.node()
    for minute in (1, 2, 3):
        await calendar.go(minute)
    first, second, third = await calendar.tasks(schedule)
    await lab.components.canceller.cancel(lab.client, [second])
    assert list(await begun(lab, node)) == [first]
    assert await lab.status(third) == "blocked"


async def test_an_occurrence_that_has_ended_does_not_block_the_next(lab, calendar):
    schedule = await calendar.create(overlap="queue")
    node = await calendar.node()
    await calendar.go(1)
    (first,) = await calendar.tasks(schedule)
    await finish(lab, node, first)
    await calendar.go(2)
    assert await lab.status((await calendar.tasks(schedule))[-1]) == "waiting"


async def test_a_manual_run_is_queued_too(lab, calendar):
    schedule = await calendar.create(overlap="queue")
    await calendar.go(1)
    await lab.clock.move(seconds(1))
    made = await lab.components.schedules.run(lab.client, schedule)
    assert await lab.status(made.id) == "blocked"
    await lab.conn.execute("update schedules set next_run_at = $1", calendar.at(5))
    await calendar.go(3.5)
    filled = await lab.components.schedules.backfill(
        lab.client, schedule, calendar.at(1), calendar.at(3)
    )
    blocked = [(await lab.live(task))["blocked_by"] for task in filled]
    assert blocked == [2, 3]  # the first fire time had its task


async def test_a_fire_time_beyond_the_queue_limit_is_recorded_as_refused(
    lab, calendar, monkeypatch
):
    monkeypatch.setattr(occurrence_admission, "MAX_QUEUED_OCCURRENCES", 2)
    schedule = await calendar.create(overlap="queue")
    for minute in (1, 2, 3):
        await calendar.go(minute)
    assert await calendar.ran(schedule) == [1, 2]
    assert await calendar.missed(schedule) == [(3, 1, "too_many_queued")]
    with pytest.raises(Conflict):
        await lab.components.schedules.run(lab.client, schedule)


async def test_a_queue_is_bounded_by_the_plans_max_waiting(lab, calendar, tight):
    await grant(lab, max_waiting=2)
    schedule = await calendar.create(by=tight, overlap="queue")
    for minute in (1, 2, 3):
        await calendar.go(minute)
    assert await calendar.missed(schedule) == [(3, 1, "limit_exceeded")]


async def test_overlap_skip_counts_a_graph_as_open_until_its_last_task_ends(lab, calendar):
    schedule = await calendar.create(overlap="skip", graph=DIAMOND)
    node = await calendar.node()
    await calendar.go(1)
    (graph,) = await calendar.graphs(schedule)
    refs = await begun(lab, node)
    await node.report(refs[graph["a"]])
    await lab.components.canceller.cancel(lab.client, [graph["c"]])
    await calendar.go(2)
    assert await calendar.missed(schedule) == [(2, 1, "overlap")]  # b runs
    await node.report(refs[graph["b"]])
    await calendar.go(3)
    assert await calendar.ran(schedule) == [1, 3]


async def test_overlap_cancel_other_cancels_a_whole_graph(lab, calendar):
    schedule = await calendar.create(overlap="cancel_other", graph=CHAIN)
    node = await calendar.node()
    await calendar.go(1)
    (first,) = await calendar.graphs(schedule)
    await lab.start(node, first["a"])
    await calendar.go(2)
    assert (await lab.live(first["a"]))["cancel_requested_at"] is not None
    assert await lab.status(first["b"]) == "cancelled"
    second = (await calendar.graphs(schedule))[-1]
    assert [await lab.status(task) for task in second.values()] == ["waiting", "blocked"]


async def test_overlap_queue_starts_a_graph_when_the_one_before_has_ended(lab, calendar):
    schedule = await calendar.create(overlap="queue", graph=DIAMOND, task={"max_attempts": 1})
    node = await calendar.node()
    await calendar.go(1)
    await calendar.go(2)
    first, second = await calendar.graphs(schedule)
    refs = await begun(lab, node)
    assert refs.keys() == {first["a"], first["b"]}
    await node.report(refs[first["a"]], Outcome.FAILED)
    assert (await begun(lab, node)).keys() == {first["b"]}
    assert await lab.status(first["c"]) == "cancelled"  # its only sink, while b still runs
    await node.report(refs[first["b"]])
    assert (await begun(lab, node)).keys() == {second["a"], second["b"]}


async def test_a_graph_that_needs_too_many_queue_edges_is_recorded_as_refused(
    lab, calendar, monkeypatch
):
    monkeypatch.setattr(occurrence_admission, "MAX_QUEUE_EDGES", 6)
    schedule = await calendar.create(overlap="queue", graph=DIAMOND)
    for minute in (1, 2, 3):
        await calendar.go(minute)
    assert await calendar.ran(schedule) == [1, 2]
    assert await calendar.missed(schedule) == [(3, 1, "too_many_queued")]


@pytest.mark.parametrize(
    ("limit", "graph"), [("MAX_QUEUED_OCCURRENCES", None), ("MAX_QUEUE_EDGES", DIAMOND)]
)
async def test_each_backfilled_occurrence_counts_those_before_it(
    lab, calendar, monkeypatch, limit, graph
):
    monkeypatch.setattr(occurrence_admission, limit, 2 if graph is None else 6)
    schedule = await calendar.create(overlap="queue", misfire="all", graph=graph)
    await calendar.go(4)
    assert await calendar.ran(schedule) == [1, 2]
    assert [code for *_, code in await calendar.missed(schedule)] == ["too_many_queued"] * 2
