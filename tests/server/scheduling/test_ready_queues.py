from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.server.lines import EARLIEST, SPARE, Lines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 3))


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def test_those_that_press_most_are_taken_first_whatever_their_shape():
    lines = Lines({(1, 1): at(3), (2, 1): at(1), (3, 2): at(2), (4, 3): at(0)})
    assert list(lines.take([1, 2], 2)) == [(2, 1), (3, 2)]
    assert list(lines.take([1, 2], 2)) == [(1, 1)]
    assert lines.shapes() == [3]


def test_what_is_left_where_it_is_can_be_taken_later():
    lines = Lines({(1, 1): at(3), (2, 1): at(1)})
    assert lines.first([1], 1) == {(2, 1): at(1)}
    assert lines.take([1], 9) == {(2, 1): at(1), (1, 1): at(3)}


def test_something_earlier_moves_a_line_forward_and_nothing_moves_it_back():
    lines = Lines({(1, 1): at(5), (2, 1): at(3)})
    assert not lines.note((2, 1), at(9))
    assert lines.note((1, 1), at(1))
    assert lines.take([1], 1) == {(1, 1): at(1)}
    assert lines.take([1], 9) == {(2, 1): at(3)}
    assert lines.shapes() == []


def test_a_line_that_comes_back_has_the_place_of_what_is_left_of_it():
    lines = Lines({(1, 1): at(1), (2, 1): at(2)})
    lines.take([1], 1)
    assert lines.note((1, 1), at(3))
    assert list(lines.take([1], 9)) == [(2, 1), (1, 1)]


def test_those_of_one_time_take_turns_whatever_their_shape():
    lines = Lines({(1, 1): at(1), (2, 2): at(1), (3, 1): at(1)})
    turns = []
    for _ in range(6):
        ((pair, since),) = lines.take([1, 2], 1).items()
        lines.note(pair, since)
        turns.append(pair)
    assert turns == [(1, 1), (2, 2), (3, 1)] * 2


def test_a_line_that_was_not_served_is_the_next_one():
    lines = Lines({(1, 1): at(1), (2, 2): at(1), (3, 1): at(1)})
    taken = lines.take([1, 2], 2)
    for pair, since in reversed(taken.items()):
        lines.note(pair, since, is_next=True)
    assert list(lines.take([1, 2], 9)) == [(1, 1), (2, 2), (3, 1)]


def test_those_come_first_that_follow_whoever_was_served():
    found = {(1, 1): at(1), (2, 1): at(1), (2, 2): at(1), (3, 1): at(1), (4, 1): at(0)}
    lines = Lines(found, served=(2, 1))
    assert list(lines.take([1, 2], 9)) == [(4, 1), (2, 2), (3, 1), (1, 1), (2, 1)]


def test_a_line_that_has_had_its_turn_goes_behind_the_others_of_its_time():
    lines = Lines({(1, 1): at(1), (2, 1): at(2), (3, 1): at(2), (4, 1): at(3)})
    lines.move_behind((1, 1), at(2))
    lines.move_behind((2, 1), at(2))
    lines.move_behind((5, 1), at(0))
    assert list(lines.take([1], 9).items()) == [
        ((3, 1), at(2)),
        ((1, 1), at(2)),
        ((2, 1), at(2)),
        ((4, 1), at(3)),
    ]


def test_a_line_of_which_nothing_is_known_comes_first():
    lines = Lines({(1, 1): at(1)})
    lines.note((2, 1), EARLIEST)
    assert list(lines.take([1], 1)) == [(2, 1)]


def test_a_line_that_is_dropped_is_gone_until_it_is_noted():
    lines = Lines({(1, 1): at(1)})
    lines.drop((1, 1))
    assert lines.shapes() == []
    lines.note((1, 1), at(2))
    assert lines.take([1], 1) == {(1, 1): at(2)}


class Closed:
    """A gate that is closed for some causes: (tenant, shape) pairs by what keeps them."""

    def __init__(self, causes, rooms=None):
        self.causes = causes
        self.rooms = rooms or {}
        self.asked = 0

    def cause(self, tenant, shape_id):
        self.asked += 1
        return self.causes.get((tenant, shape_id), self.causes.get(tenant))

    def tenant_room(self, tenant, shape_id):
        return self.rooms.get(tenant, 10**6)


def test_lines_that_may_not_move_are_passed_over_and_stay_known():
    lines = Lines({(1, 1): at(0), (1, 2): at(1), (2, 1): at(2), (3, 2): at(3)})
    assert list(lines.take([1, 2], 9, Closed({1: "full"}))) == [(2, 1), (3, 2)]
    assert sorted(lines.shapes()) == [1, 2]
    assert lines.of_shapes({1}) == [(1, 1)]
    assert lines.tenants == {1, 2, 3}
    assert lines.take([1, 2], 9) == {}


def test_lines_come_back_where_they_were_once_they_may_move():
    lines = Lines({(1, 1): at(0), (2, 1): at(1)})
    lines.take([1], 9, Closed({1: "full", 2: "full"}))
    lines.bring_back(Closed({1: "full", 2: "full"}))
    assert lines.take([1], 9) == {}
    lines.bring_back(Closed({}))
    assert lines.take([1], 9) == {(1, 1): at(0), (2, 1): at(1)}


def test_a_line_that_another_thing_keeps_hides_none_of_those_behind_it():
    lines = Lines({(1, 1): at(0), (1, 2): at(1)})
    lines.take([1, 2], 9, Closed({1: "full"}))
    key = Closed({(1, 1): "key"})
    lines.bring_back(key)
    assert list(lines.take([1, 2], 9, key)) == [(1, 2)]
    lines.bring_back(Closed({}))
    assert list(lines.take([1, 2], 9)) == [(1, 1)]


def test_something_earlier_moves_a_line_forward_that_is_set_aside():
    lines = Lines({(1, 1): at(5), (1, 2): at(3)})
    lines.take([1, 2], 9, Closed({1: "full"}))
    assert not lines.note((1, 1), at(9))
    assert not lines.note((1, 1), at(1))
    lines.bring_back(Closed({}))
    assert lines.take([1, 2], 9) == {(1, 1): at(1), (1, 2): at(3)}


def test_of_a_tenant_that_may_start_a_little_no_more_lines_are_taken_than_of_use():
    many = {(1, shape): at(shape) for shape in range(1000)}
    lines = Lines({**many, (2, 1): at(2000)})
    gate = Closed({}, rooms={1: 1})
    taken = lines.take(range(1000), 200, gate)
    assert list(taken) == [*((1, shape) for shape in range(1 + SPARE)), (2, 1)]
    for pair, since in taken.items():
        lines.note(pair, since)
    full = Closed({1: "full"}, rooms={1: 0})
    assert list(lines.take(range(1000), 200, full)) == [(2, 1)]
    gate.asked = 0
    lines.bring_back(gate)
    assert gate.asked <= 4 * (1 + SPARE)
    assert len(lines.take(range(1000), 200)) <= 2 * (1 + SPARE)


@given(
    st.dictionaries(PAIRS, st.integers(0, 3)),
    st.lists(
        st.one_of(
            st.tuples(st.just("note"), PAIRS, st.integers(0, 3)),
            st.tuples(st.just("drop"), PAIRS),
            st.tuples(st.just("take"), st.integers(1, 5)),
        ),
        max_size=20,
    ),
)
def test_lines_are_taken_by_time_and_then_in_turn(counted, steps):
    lines = Lines({pair: at(second) for pair, second in counted.items()})
    known = {pair: (at(second), turn) for turn, (pair, second) in enumerate(counted.items())}
    for turn, step in enumerate(steps, len(counted)):
        match step:
            case ("note", pair, second):
                lines.note(pair, at(second))
                if pair not in known or at(second) < known[pair][0]:
                    known[pair] = at(second), turn
            case ("drop", pair):
                lines.drop(pair)
                known.pop(pair, None)
            case ("take", count):
                first = sorted(known, key=known.get)[:count]
                assert lines.first([1, 2, 3], count) == {pair: known[pair][0] for pair in first}
                assert list(lines.take([1, 2, 3], count).items()) == [
                    (pair, known.pop(pair)[0]) for pair in first
                ]
        assert set(lines.shapes()) == {shape for _, shape in known}
