from datetime import UTC, datetime, timedelta

from duly.server.lines import EARLIEST, Lines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


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
