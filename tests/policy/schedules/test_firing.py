from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.model.schedules.schedule import Misfire, MissedFireTimes, Overlap
from duly.policy.schedules import firing
from duly.policy.schedules.firing import (
    MAX_CATCH_UP_RUNS,
    MAX_FIRE_TIMES_PER_DECISION,
    MAX_RUNS_PER_DECISION,
    FiringDecision,
    decide,
    jittered_start,
    missed_until,
)
from duly.policy.schedules.recurrence import between, next_after

START = datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def every(interval, **fields):
    asked = RecurrenceRequest(every=interval, start_at=START.isoformat(), **fields)
    return parse_recurrence(asked, now=START)


MINUTELY = every("1m")


def minute(number):
    return START + number * MINUTE


GRACE = timedelta(seconds=30)


def decided(
    now, *, misfire="once", overlap="allow", has_live=False, recurrence=MINUTELY, grace=GRACE
):
    return decide(
        recurrence,
        START,
        misfire=Misfire(misfire),
        overlap=Overlap(overlap),
        has_live=has_live,
        grace=grace,
        now=now,
    )


def missed(first, last, reason):
    return MissedFireTimes(minute(first), minute(last), last - first + 1, reason)


@pytest.mark.parametrize("misfire", Misfire)
def test_a_fire_time_that_is_seen_to_in_time_runs_whatever_the_policy(misfire):
    assert decided(START, misfire=misfire) == FiringDecision([START], [], minute(1))
    assert decided(START + 0.5 * MINUTE, misfire=misfire) == FiringDecision([START], [], minute(1))


@pytest.mark.parametrize("misfire", Misfire)
def test_what_is_not_due_is_left_alone(misfire):
    assert decided(START - MINUTE, misfire=misfire) == FiringDecision([], [], START)


def test_of_several_in_time_each_runs():
    seconds = every("1s")
    done = decided(START + timedelta(seconds=3.5), recurrence=seconds)
    assert done.runs == [START + timedelta(seconds=number) for number in range(4)]


@pytest.mark.parametrize(
    ("misfire", "runs", "misses"),
    [
        ("skip", [5], [missed(0, 4, firing.TOO_LATE)]),
        ("once", [5], [missed(0, 4, firing.MADE_UP_FOR)]),
        ("all", [0, 1, 2, 3, 4, 5], []),
    ],
)
def test_late_ones_with_one_in_time_after_them(misfire, runs, misses):
    done = decided(minute(5), misfire=misfire)
    assert done == FiringDecision([minute(number) for number in runs], misses, minute(6))


@pytest.mark.parametrize(
    ("misfire", "runs", "misses"),
    [
        ("skip", [], [missed(0, 5, firing.TOO_LATE)]),
        ("once", [5], [missed(0, 4, firing.MADE_UP_FOR)]),
        ("all", [0, 1, 2, 3, 4, 5], []),
    ],
)
def test_late_ones_alone(misfire, runs, misses):
    done = decided(minute(5.9), misfire=misfire)
    assert done == FiringDecision([minute(number) for number in runs], misses, minute(6))


def test_all_is_bounded_to_the_last_ones():
    done = decided(minute(499.9), misfire="all")
    assert done.missed == [missed(0, 399, firing.TOO_MANY)]
    assert done.runs == [minute(number) for number in range(400, 500)]
    assert done.next_run_at == minute(500)


def test_what_is_too_long_ago_is_known_in_the_first_piece_of_a_long_list():
    done = decided(minute(2000), misfire="all")
    assert done == FiringDecision(
        [],
        [missed(0, MAX_FIRE_TIMES_PER_DECISION - 1, firing.TOO_MANY)],
        minute(MAX_FIRE_TIMES_PER_DECISION),
    )


def test_no_more_than_so_many_run_by_one_decision():
    done = decided(minute(150), grace=200 * MINUTE)
    assert done == FiringDecision(
        [minute(one) for one in range(MAX_RUNS_PER_DECISION)], [], minute(MAX_RUNS_PER_DECISION)
    )


def test_the_last_of_a_schedule_leaves_none_to_come():
    once = parse_recurrence(RecurrenceRequest(run_at=START.isoformat()), now=START)
    assert decided(START, recurrence=once) == FiringDecision([START], [], None)


@pytest.mark.parametrize(
    ("overlap", "has_live", "runs", "misses", "cancels"),
    [
        ("allow", True, [4, 5], [], False),
        ("queue", True, [4, 5], [], False),
        ("skip", False, [4], [missed(5, 5, firing.OVERLAP)], False),
        ("skip", True, [], [missed(4, 5, firing.OVERLAP)], False),
        ("cancel_other", False, [5], [missed(4, 4, firing.REPLACED)], False),
        ("cancel_other", True, [5], [missed(4, 4, firing.REPLACED)], True),
    ],
)
def test_overlap_is_kept_within_what_is_due_at_once_too(overlap, has_live, runs, misses, cancels):
    seconds = decide(
        MINUTELY,
        minute(4),
        misfire=Misfire.SKIP,
        overlap=Overlap(overlap),
        has_live=has_live,
        grace=2 * MINUTE,
        now=minute(5),
    )
    times = [minute(number) for number in runs]
    assert seconds == FiringDecision(times, misses, minute(6), cancels)


def test_nothing_is_cancelled_for_a_fire_time_that_does_not_run():
    done = decided(minute(5.9), misfire="skip", overlap="cancel_other", has_live=True)
    assert not done.cancels_others


@settings(max_examples=60, deadline=None)
@given(
    misfire=st.sampled_from(Misfire),
    overlap=st.sampled_from(Overlap),
    has_live=st.booleans(),
    seconds=st.integers(1, 1000),
    late=st.integers(0, 5000),
    grace=st.integers(0, 3000),
)
def test_piece_by_piece_every_fire_time_runs_or_is_missed_once(
    misfire, overlap, has_live, seconds, late, grace
):
    recurrence = every(seconds)
    now = START + timedelta(seconds=late)
    times = between(recurrence, START - MINUTE, now, limit=10**6)
    runs, misses, at = [], 0, START
    while at <= now:
        done = decide(
            recurrence,
            at,
            misfire=misfire,
            overlap=overlap,
            has_live=has_live,
            grace=timedelta(seconds=grace),
            now=now,
        )
        runs += done.runs
        for one in done.missed:
            whole = between(recurrence, one.first_at - MINUTE / 60, one.last_at, limit=10**6)
            assert one.times == len([time for time in whole if time >= one.first_at])
            misses += one.times
        assert done.next_run_at > at
        at = done.next_run_at
    assert at == next_after(recurrence, now)
    assert len(runs) + misses == len(times)
    assert runs == sorted(set(runs))
    if misfire is Misfire.ALL and overlap in (Overlap.ALLOW, Overlap.QUEUE):
        in_time = [time for time in times if time >= now - timedelta(seconds=grace)]
        assert runs == times[-max(MAX_CATCH_UP_RUNS, len(in_time)) :]


def test_what_is_passed_over_is_told_with_its_number():
    assert missed_until(MINUTELY, START, firing.OVERLAP, now=minute(2.5)) == missed(
        0, 2, firing.OVERLAP
    )
    assert missed_until(MINUTELY, minute(3), firing.OVERLAP, now=minute(2.5)) is None


def test_jitter_moves_the_start_by_the_same_share_each_time():
    spread = every("1m", jitter="10m")
    starts = [jittered_start(spread, 7, minute(number)) - minute(number) for number in range(200)]
    assert starts == [
        jittered_start(spread, 7, minute(number)) - minute(number) for number in range(200)
    ]
    assert all(timedelta(0) <= one < 10 * MINUTE for one in starts)
    assert max(starts) - min(starts) > 9 * MINUTE
    assert jittered_start(spread, 8, START) != jittered_start(spread, 7, START)
    assert jittered_start(MINUTELY, 7, START) == START
