"""The urgency that a task inherits: remaining path, tolerance and start_by of its downstream."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.model.graph import NOTHING_INHERITED, InheritedUrgency
from duly.policy.graph_order import TaskTiming, inherit_urgency, start_by
from tests.model.graphs import graphs
from tests.model.test_graph import topological_order

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DEEP = 100_000


def seconds(count):
    return timedelta(seconds=count)


def at(count):
    return NOW + seconds(count)


def inherited_by(upstreams, timings):
    return inherit_urgency(upstreams, topological_order(upstreams, str), timings)


def downstream_paths(upstreams, index):
    """Return every path from a task to one of its direct or indirect downstream tasks."""
    paths, unfinished = [], [[index]]
    while unfinished:
        path = unfinished.pop()
        for downstream, its_upstreams in enumerate(upstreams):
            if path[-1] in its_upstreams:
                paths.append([*path, downstream])
                unfinished.append([*path, downstream])
    return paths


timings = st.builds(
    TaskTiming,
    st.integers(0, 5).map(seconds),
    st.none() | st.none() | st.integers(-3, 9).map(at),
)


@st.composite
def timed_graphs(draw):
    """Draw a graph and the timing of each task; small, because every path is enumerated."""
    upstreams = draw(graphs(max_tasks=9))
    return upstreams, [draw(timings) for _ in upstreams]


@settings(deadline=None)
@given(timed_graphs())
def test_the_remaining_path_is_the_longest_path_to_a_task_without_downstream_tasks(graph):
    upstreams, timings = graph
    for index, inherited in enumerate(inherited_by(upstreams, timings)):
        lengths = (len(path) - 1 for path in downstream_paths(upstreams, index))
        assert inherited.remaining_path == max(lengths, default=0)


@settings(deadline=None)
@given(timed_graphs())
def test_a_task_inherits_the_smallest_tolerance_of_its_downstream_tasks(graph):
    """Downstream tasks behind one with a `run_at` pass on a start_by counted from that time."""
    upstreams, timings = graph
    for index, inherited in enumerate(inherited_by(upstreams, timings)):
        tolerances, start_bys = [], []
        for path in downstream_paths(upstreams, index):
            run_ats = [timings[task].run_at for task in path[1:] if timings[task].run_at]
            tolerance = timings[path[-1]].delay_tolerance
            if run_ats:
                start_bys.append(run_ats[-1] + tolerance)
            else:
                tolerances.append(tolerance)
        assert inherited.tolerance == min(tolerances, default=None)
        assert inherited.start_by == min(start_bys, default=None)


@settings(deadline=None)
@given(timed_graphs(), st.integers(0, 12).map(at))
def test_no_task_has_a_later_start_by_than_its_downstream_tasks(graph, ready_at):
    """A downstream task is ready when its upstream has run, which takes no time at best."""
    upstreams, timings = graph
    inherited = inherited_by(upstreams, timings)
    for task, its_upstreams in enumerate(upstreams):
        for upstream in its_upstreams:
            upstream_ready_at = max(ready_at, timings[upstream].run_at or ready_at)
            task_ready_at = max(upstream_ready_at, timings[task].run_at or ready_at)
            assert due(inherited[upstream], timings[upstream], upstream_ready_at) <= due(
                inherited[task], timings[task], task_ready_at
            )


def due(inherited, timing, ready_at):
    tolerance = timing.delay_tolerance
    if inherited.tolerance is not None:
        tolerance = min(tolerance, inherited.tolerance)
    return start_by(ready_at, tolerance, inherited.start_by)


def test_a_task_without_downstream_tasks_inherits_nothing():
    assert inherited_by([[], []], [TaskTiming(seconds(5)), TaskTiming(seconds(0), at(3))]) == [
        NOTHING_INHERITED,
        NOTHING_INHERITED,
    ]


def test_a_short_tolerance_reaches_all_upstream_tasks_but_not_siblings():
    tolerant, urgent = TaskTiming(seconds(600)), TaskTiming(seconds(1))
    inherited = inherited_by([[], [0], [0], [1]], [tolerant, tolerant, tolerant, urgent])
    assert inherited == [
        InheritedUrgency(2, seconds(1)),
        InheritedUrgency(1, seconds(1)),
        NOTHING_INHERITED,
        NOTHING_INHERITED,
    ]


def test_a_task_with_a_run_at_passes_on_a_start_by_instead_of_a_tolerance():
    timings = [TaskTiming(seconds(600)), TaskTiming(seconds(5), at(60))]
    assert inherited_by([[], [0]], timings)[0] == InheritedUrgency(1, None, at(65))
    assert start_by(at(0), seconds(600), at(65)) == at(65)


CASES = [
    (0, 10, None, 10),
    (0, 10, 5, 5),
    (0, 10, 50, 10),
    (7, 10, 5, 7),
    (7.9, 10, None, 17),
]


@pytest.mark.parametrize(("ready", "tolerance", "inherited", "expected"), CASES)
def test_start_by_is_the_earlier_of_the_own_and_the_inherited_but_not_before_ready(
    ready, tolerance, inherited, expected
):
    inherited = None if inherited is None else at(inherited)
    assert start_by(at(ready), seconds(tolerance), inherited) == at(expected)


def test_a_graph_may_be_as_deep_as_it_is_large():
    chain = [[index - 1] if index else [] for index in range(DEEP)]
    timings = [TaskTiming(seconds(9))] * (DEEP - 1) + [TaskTiming(seconds(1))]
    inherited = inherit_urgency(chain, range(DEEP), timings)
    assert inherited[0] == InheritedUrgency(DEEP - 1, seconds(1))
    assert inherited[-1] == NOTHING_INHERITED
