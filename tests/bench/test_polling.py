"""The polling interval shrinks towards the end, within bounds."""

import pytest

from benchmarks.polling import MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS, next_interval


def test_each_interval_is_half_of_the_estimated_remaining_time():
    assert next_interval(elapsed=1.0, ended=500, remaining=100) == pytest.approx(0.1)
    assert next_interval(elapsed=1.1, ended=550, remaining=50) == pytest.approx(0.05)


def test_the_interval_is_bounded_on_both_sides():
    assert next_interval(elapsed=0.5, ended=0, remaining=1000) == MIN_INTERVAL_SECONDS
    assert next_interval(elapsed=1.0, ended=999, remaining=1) == MIN_INTERVAL_SECONDS
    assert next_interval(elapsed=60.0, ended=1, remaining=1000) == MAX_INTERVAL_SECONDS


def test_the_interval_is_short_if_tasks_were_added_meanwhile():
    assert next_interval(elapsed=1.0, ended=-5, remaining=1000) == MIN_INTERVAL_SECONDS
