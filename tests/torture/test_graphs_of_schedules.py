"""The invariant about schedules rejects graphs that are lost, doubled, halved or out of turn."""

import msgspec
import pytest

from tests.torture.synthetic_schedule import CHAIN, SyntheticSchedule, fired, fired_graphs, told


def test_a_schedule_of_graphs_that_fires_at_its_times_is_accepted():
    plan = fired_graphs(10, 20, 30)
    plan.miss(40, "limit_exceeded")
    plan.done_all(plan.fire_graph(50))
    plan.stay()
    assert plan.wrong(phase="quiet") == []


def test_a_graph_that_is_lost_is_found():
    plan = fired_graphs(10, 20, 40, 50)
    plan.stay()
    assert plan.wrong() == [f"{told(30)} came, and nothing says what became of it"]


def test_a_graph_that_was_claimed_and_is_not_there_is_found():
    plan = fired_graphs(10, 20)
    plan.stay(30)
    gone = plan.graphs.pop()
    assert f"the graph {gone.id} of {told(20)} does not exist" in plan.wrong()
    assert any("nobody asked for it" in one for one in plan.wrong())


def test_a_graph_that_is_doubled_is_found_by_what_is_recorded_and_by_its_tasks_alone():
    plan = fired_graphs(10, 20)
    plan.done_all(plan.fire_graph(20, graph=2000))
    plan.stay(30)
    assert f"{told(20)} was seen to 2 times" in plan.wrong()
    plan.occurrences.pop()
    alone = [one for one in plan.wrong() if "were to run at" in one]
    assert len(alone) == len(CHAIN["tasks"])


def test_a_graph_that_belongs_to_two_fire_times_is_found():
    plan = fired_graphs(10)
    plan.claim(20, graph_id=1010)
    plan.stay(30)
    assert "[9] the graph 1010 belongs to 2 fire times" in plan.wrong()


def test_half_a_graph_is_found():
    plan = fired_graphs(10)
    plan.stay(20)
    del plan.tasks[10101]
    assert plan.wrong()[0] == "the graph 1010 is without its b"
    plan = fired_graphs(10)
    plan.stay(20)
    plan.tasks[10101] = msgspec.structs.replace(plan.tasks[10101], graph_id=None)
    assert plan.wrong()[0] == "the graph 1010 is without its b"


def test_a_graph_with_a_task_too_many_is_found():
    plan = fired_graphs(10)
    plan.stay(20)
    plan.store(5, graph_id=1010, ref="d")
    plan.graphs[0].task_ids.append(5)
    assert "the graph 1010 has more tasks than the schedule says" in plan.wrong()


def test_an_edge_of_a_graph_that_is_lost_is_found():
    plan = fired_graphs(10)
    plan.stay(20)
    plan.edges.pop()
    assert plan.wrong() == ["c of the graph 1010 was to wait for b, which is not stored"]


def test_a_graph_that_was_stored_in_pieces_is_found():
    plan = fired_graphs(10)
    plan.stay(20)
    place = next(place for place, one in enumerate(plan.steps) if one.task == 10102)
    plan.steps[place] = msgspec.structs.replace(plan.steps[place], xid=3)
    assert plan.wrong() == ["c of the graph 1010 was not stored with its fire time"]


def test_a_task_in_the_place_of_a_graph_is_found_and_the_other_way_round():
    plan = fired(10, graph=CHAIN)
    plan.stay(20)
    assert plan.wrong() == [f"{told(10)} became the task 110, which the schedule does not say"]
    plan = SyntheticSchedule()
    plan.done_all(plan.fire_graph(10))
    plan.stay(20)
    assert plan.wrong() == [f"{told(10)} became the graph 1010, which the schedule does not say"]


def test_a_graph_that_comes_late_is_found():
    plan = fired_graphs(10)
    plan.stay(20)
    place = next(place for place, one in enumerate(plan.steps) if one.what == "occurrence")
    step = plan.steps[place]
    late = {**(step.row or {}), "recorded_at": told(17)}
    plan.steps[place] = msgspec.structs.replace(step, row=late)
    assert plan.wrong() == [f"the graph 1010 of {told(10)} was submitted 7.0 s late"]


@pytest.mark.parametrize(
    ("overlap", "wrong"), [("skip", 3), ("allow", 0), ("queue", 0), ("cancel_other", 3)]
)
def test_a_graph_beside_the_tasks_of_an_earlier_one_is_found_where_it_must_not_be(overlap, wrong):
    plan = SyntheticSchedule(graph=CHAIN, overlap=overlap)
    first, second = plan.fire_graph(10), plan.fire_graph(20)
    plan.done_all(first)
    plan.done_all(second)
    plan.stay(30)
    assert len(plan.wrong()) == wrong


def test_a_graph_that_begins_before_all_of_the_one_ahead_of_it_has_ended_is_found():
    plan = SyntheticSchedule(graph=CHAIN, overlap="queue")
    plan.fire_graph(10)
    plan.fire_graph(20)
    plan.done(10100)
    plan.done(10101)
    plan.lease(10102)
    plan.stay(30)
    assert plan.wrong() == []
    plan.done(10200)
    assert plan.wrong() == ["the task 10200 was leased before the task 10102 had ended"]
