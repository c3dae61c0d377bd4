"""The invariant of schedules detects lost, duplicated, incomplete and overlapping graphs."""

import msgspec
import pytest

from tests.torture.synthetic_schedule import (
    CHAIN,
    SyntheticSchedule,
    fired,
    fired_graphs,
    time_text,
)


def test_a_schedule_of_graphs_that_fires_at_its_times_is_accepted():
    schedule = fired_graphs(10, 20, 30)
    schedule.miss(40, "limit_exceeded")
    schedule.done_all(schedule.fire_graph(50))
    schedule.keep()
    assert schedule.violations(phase="quiet") == []


def test_a_graph_that_is_lost_is_found():
    schedule = fired_graphs(10, 20, 40, 50)
    schedule.keep()
    assert schedule.violations() == [f"{time_text(30)} has passed without a record"]


def test_a_graph_that_was_claimed_and_is_not_stored_is_found():
    schedule = fired_graphs(10, 20)
    schedule.keep(30)
    gone = schedule.graphs.pop()
    assert f"the graph {gone.id} of {time_text(20)} does not exist" in schedule.violations()
    assert any("no client submitted it" in message for message in schedule.violations())


def test_a_duplicated_graph_is_found_by_the_records_and_by_its_tasks_alone():
    schedule = fired_graphs(10, 20)
    schedule.done_all(schedule.fire_graph(20, graph=2000))
    schedule.keep(30)
    assert f"{time_text(20)} was recorded 2 times" in schedule.violations()
    schedule.occurrences.pop()
    alone = [message for message in schedule.violations() if "have the fire time" in message]
    assert len(alone) == len(CHAIN["tasks"])


def test_a_graph_that_belongs_to_two_fire_times_is_found():
    schedule = fired_graphs(10)
    schedule.claim(20, graph_id=1010)
    schedule.keep(30)
    assert "[9] the graph 1010 belongs to 2 fire times" in schedule.violations()


def test_an_incomplete_graph_is_found():
    schedule = fired_graphs(10)
    schedule.keep(20)
    del schedule.tasks[10101]
    assert schedule.violations()[0] == "the graph 1010 lacks b"
    schedule = fired_graphs(10)
    schedule.keep(20)
    schedule.tasks[10101] = msgspec.structs.replace(schedule.tasks[10101], graph_id=None)
    assert schedule.violations()[0] == "the graph 1010 lacks b"


def test_a_graph_with_an_extra_task_is_found():
    schedule = fired_graphs(10)
    schedule.keep(20)
    schedule.store(5, graph_id=1010, ref="d")
    schedule.graphs[0].task_ids.append(5)
    assert "the graph 1010 has more tasks than the template" in schedule.violations()


def test_an_edge_of_a_graph_that_is_lost_is_found():
    schedule = fired_graphs(10)
    schedule.keep(20)
    schedule.edges.pop()
    assert schedule.violations() == ["the dependency of c of the graph 1010 on b is not stored"]


def test_a_graph_that_was_stored_in_two_transactions_is_found():
    schedule = fired_graphs(10)
    schedule.keep(20)
    index = next(index for index, step in enumerate(schedule.steps) if step.task == 10102)
    schedule.steps[index] = msgspec.structs.replace(schedule.steps[index], xid=3)
    assert schedule.violations() == [
        "c of the graph 1010 was not stored in the transaction of its claim"
    ]


def test_a_task_instead_of_a_graph_is_found_and_vice_versa():
    schedule = fired(10, graph=CHAIN)
    schedule.keep(20)
    assert schedule.violations() == [
        f"{time_text(10)} became the task 110, which is not its template"
    ]
    schedule = SyntheticSchedule()
    schedule.done_all(schedule.fire_graph(10))
    schedule.keep(20)
    assert schedule.violations() == [
        f"{time_text(10)} became the graph 1010, which is not its template"
    ]


def test_a_graph_that_comes_late_is_found():
    schedule = fired_graphs(10)
    schedule.keep(20)
    index = next(index for index, step in enumerate(schedule.steps) if step.what == "occurrence")
    step = schedule.steps[index]
    late = {**(step.row or {}), "recorded_at": time_text(17)}
    schedule.steps[index] = msgspec.structs.replace(step, row=late)
    assert schedule.violations() == [f"the graph 1010 of {time_text(10)} was submitted 7.0 s late"]


@pytest.mark.parametrize(
    ("overlap", "count"), [("skip", 3), ("allow", 0), ("queue", 0), ("cancel_other", 3)]
)
def test_an_overlapping_graph_is_found_unless_the_policy_allows_it(overlap, count):
    schedule = SyntheticSchedule(graph=CHAIN, overlap=overlap)
    first, second = schedule.fire_graph(10), schedule.fire_graph(20)
    schedule.done_all(first)
    schedule.done_all(second)
    schedule.keep(30)
    assert len(schedule.violations()) == count


def test_a_queued_graph_that_starts_before_the_one_ahead_has_ended_is_found():
    schedule = SyntheticSchedule(graph=CHAIN, overlap="queue")
    schedule.fire_graph(10)
    schedule.fire_graph(20)
    schedule.done(10100)
    schedule.done(10101)
    schedule.lease(10102)
    schedule.keep(30)
    assert schedule.violations() == []
    schedule.done(10200)
    assert schedule.violations() == ["the task 10200 was leased before the task 10102 had ended"]
