import math
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.run_time import RunTime
from duly.policy.run_time import MIN_SAMPLES_FOR_BOUND, estimate, observe

RUN_TIMES = st.floats(0.05, 1e5)


def learn(seconds, known=None):
    for each in seconds:
        known = observe(known, each)
    return known


def noisy(median, count, *, spread=0.3, seed=1):
    dice = Random(seed)
    return [median * math.exp(dice.gauss(0, spread)) for _ in range(count)]


def expected(known):
    return estimate(known).expected.total_seconds()


def test_the_first_run_is_all_that_is_known_and_bounds_nothing():
    known = observe(None, 12.5)
    assert known == RunTime(1, math.log(12.5), 0.0)
    assert expected(known) == 12.5
    assert estimate(known).bound is None


@given(median=RUN_TIMES, seed=st.integers(0, 1000))
def test_the_expected_run_time_is_near_the_median(median, seed):
    known = learn(noisy(median, 100, seed=seed))
    assert median / 1.5 <= expected(known) <= median * 1.5


@given(before=RUN_TIMES, after=RUN_TIMES, seed=st.integers(0, 1000))
def test_the_estimate_follows_a_shift(before, after, seed):
    known = learn(noisy(before, 100, seed=seed))
    known = learn(noisy(after, 60, seed=seed + 1), known)
    assert after / 2 <= expected(known) <= after * 2


@pytest.mark.parametrize("spread", [0.0, 0.3])
@given(median=RUN_TIMES, outlier=st.floats(0, 1e9), seed=st.integers(0, 1000))
def test_one_outlier_hardly_changes_the_estimate(spread, median, outlier, seed):
    known = learn(noisy(median, 50, spread=spread, seed=seed))
    after = observe(known, outlier)
    assert expected(known) / 1.2 <= expected(after) <= expected(known) * 1.2


@given(median=RUN_TIMES, seed=st.integers(0, 1000))
def test_runs_end_within_the_bound_once_there_are_enough(median, seed):
    known = learn(noisy(median, MIN_SAMPLES_FOR_BOUND - 1, seed=seed))
    assert estimate(known).bound is None
    known = learn(noisy(median, 200, seed=seed), known)
    bound = estimate(known).bound.total_seconds()
    runs = noisy(median, 200, seed=seed + 1)
    assert sum(run <= bound for run in runs) >= 0.9 * len(runs)
    assert bound <= max(1, 16 * median)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=200))
def test_any_run_times_give_an_estimate(seconds):
    known = learn(seconds)
    assert known.samples == len(seconds)
    told = estimate(known)
    assert timedelta(0) < told.expected
    assert told.bound is None or told.bound >= timedelta(seconds=1)


def test_names_that_are_alike_have_the_same_bound():
    bounds = {estimate(learn(noisy(20, 30, seed=seed))).bound for seed in range(30)}
    assert len(bounds) <= 3
