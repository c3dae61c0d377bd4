"""Looks at what is left get closer together towards the end, and never stop."""

import pytest

from benchmarks.polling import LONGEST, LOOK, next_look


def test_each_look_halves_what_seems_to_be_left():
    assert next_look(passed=1.0, ended=500, left=100) == pytest.approx(0.1)
    assert next_look(passed=1.1, ended=550, left=50) == pytest.approx(0.05)


def test_looks_are_neither_too_close_nor_too_far_apart():
    assert next_look(passed=0.5, ended=0, left=1000) == LOOK
    assert next_look(passed=1.0, ended=999, left=1) == LOOK
    assert next_look(passed=60.0, ended=1, left=1000) == LONGEST
    assert next_look(passed=1.0, ended=-5, left=1000) == LOOK  # More came meanwhile.
