"""What is ahead of a task in its graph: how long a way, and who is less patient than itself."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.model.graph import NOTHING, Ahead
from duly.policy.graph_order import Wish, look_ahead, start_by
from tests.model.graphs import graphs
from tests.model.test_graph import sort

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DEEP = 100_000


def seconds(count):
    return timedelta(seconds=count)


def at(count):
    return NOW + seconds(count)


def ahead(upstreams, wishes):
    return look_ahead(upstreams, sort(upstreams, str), wishes)


def behind(upstreams, place):
    """Return every way from a task to one that waits for it, however indirectly."""
    found, ways = [], [[place]]
    while ways:
        way = ways.pop()
        for index, ones in enumerate(upstreams):
            if way[-1] in ones:
                found.append([*way, index])
                ways.append([*way, index])
    return found


wishes = st.builds(
    Wish,
    st.integers(0, 5).map(seconds),
    st.none() | st.none() | st.integers(-3, 9).map(at),
)


@st.composite
def wanted(draw):
    """Draw a graph and what each of its tasks wants; small, because every way is walked."""
    upstreams = draw(graphs(most=9))
    return upstreams, [draw(wishes) for _ in upstreams]


@settings(deadline=None)
@given(wanted())
def test_the_path_is_the_longest_way_to_a_task_for_which_nobody_waits(given):
    upstreams, wishes = given
    for place, found in enumerate(ahead(upstreams, wishes)):
        assert found.path == max((len(way) - 1 for way in behind(upstreams, place)), default=0)


@settings(deadline=None)
@given(wanted())
def test_a_task_is_as_patient_as_the_least_patient_behind_it(given):
    """Those that lie behind one with a time of its own press by that time."""
    upstreams, wishes = given
    for place, found in enumerate(ahead(upstreams, wishes)):
        soon, times = [], []
        for way in behind(upstreams, place):
            times_of_their_own = [wishes[one].run_at for one in way[1:] if wishes[one].run_at]
            tolerance = wishes[way[-1]].delay_tolerance
            if times_of_their_own:
                times.append(times_of_their_own[-1] + tolerance)
            else:
                soon.append(tolerance)
        assert found.patience == min(soon, default=None)
        assert found.latest == min(times, default=None)


@settings(deadline=None)
@given(wanted(), st.integers(0, 12).map(at))
def test_nobody_has_to_start_later_than_whoever_waits_for_it(given, ready_at):
    """Which is ready when the other has run, and that takes no time at best."""
    upstreams, wishes = given
    found = ahead(upstreams, wishes)
    for place, ones in enumerate(upstreams):
        for one in ones:
            upstream_ready_at = max(ready_at, wishes[one].run_at or ready_at)
            dependant_ready_at = max(upstream_ready_at, wishes[place].run_at or ready_at)
            assert due(found[one], wishes[one], upstream_ready_at) <= due(
                found[place], wishes[place], dependant_ready_at
            )


def due(ahead, wish, ready_at):
    patience = wish.delay_tolerance if ahead.patience is None else ahead.patience
    return start_by(ready_at, min(wish.delay_tolerance, patience), ahead.latest)


def test_what_waits_for_nobody_and_for_which_nobody_waits_has_nothing_ahead():
    assert ahead([[], []], [Wish(seconds(5)), Wish(seconds(0), at(3))]) == [NOTHING, NOTHING]


def test_an_impatient_end_hurries_the_whole_graph_but_not_what_lies_beside_it():
    patient, hurried = Wish(seconds(600)), Wish(seconds(1))
    found = ahead([[], [0], [0], [1]], [patient, patient, patient, hurried])
    assert found == [Ahead(2, seconds(1)), Ahead(1, seconds(1)), NOTHING, NOTHING]


def test_what_is_wanted_at_nine_does_not_hurry_anybody_before():
    found = ahead([[], [0]], [Wish(seconds(600)), Wish(seconds(5), at(60))])
    assert found[0] == Ahead(1, None, at(65))
    assert start_by(at(0), seconds(600), at(65)) == at(65)


CASES = [
    (0, 10, None, 10),
    (0, 10, 5, 5),
    (0, 10, 50, 10),
    (7, 10, 5, 7),
    (7.9, 10, None, 17),
]


@pytest.mark.parametrize(("ready", "tolerance", "latest", "expected"), CASES)
def test_a_task_has_to_start_by_the_earlier_of_two_times_but_not_before_it_can(
    ready, tolerance, latest, expected
):
    latest = None if latest is None else at(latest)
    assert start_by(at(ready), seconds(tolerance), latest) == at(expected)


def test_a_graph_may_be_as_deep_as_it_is_large():
    chain = [[index - 1] if index else [] for index in range(DEEP)]
    wishes = [Wish(seconds(9))] * (DEEP - 1) + [Wish(seconds(1))]
    found = look_ahead(chain, range(DEEP), wishes)
    assert found[0] == Ahead(DEEP - 1, seconds(1))
    assert found[-1] == NOTHING
