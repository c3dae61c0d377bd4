"""Attempts that a downstream has throttled are retried and count as no failure, up to a bound."""

from datetime import UTC, datetime, timedelta

import pytest

from duly.model.task import Outcome, Tally
from duly.policy.retry import MAX_THROTTLES, DeadLetter, Retry, RetryPolicy, Throttle, count, decide

NOW = datetime(2027, 1, 1, tzinfo=UTC)
ONCE = RetryPolicy(max_attempts=1)


def after(throttle, policy=ONCE, jitter=1.0, failures=0):
    tally = count(Tally(failures, 0), Outcome.FAILED, throttle)
    decision = decide(
        policy, Outcome.FAILED, tally, is_cancelled=False, exit_code=75, throttle=throttle,
        now=NOW, jitter=jitter,
    )  # fmt: skip
    return tally.failures, decision


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_it_comes_back_no_earlier_than_it_was_told_and_keeps_its_place(jitter):
    told = Throttle(1, timedelta(seconds=10))
    failures, decision = after(told, jitter=jitter)
    assert failures == 0
    assert decision == Retry(NOW + timedelta(seconds=10 + jitter), keeps_place=True)


def test_without_a_time_it_backs_off():
    assert after(Throttle(3)) == (0, Retry(NOW + timedelta(seconds=20), keeps_place=True))


def test_after_too_many_times_it_counts_as_a_failure():
    assert after(Throttle(MAX_THROTTLES))[0] == 0
    failures, decision = after(Throttle(MAX_THROTTLES + 1))
    assert failures == 1
    assert isinstance(decision, DeadLetter)


def test_a_task_that_asks_for_no_retry_after_75_gets_none():
    policy = RetryPolicy(max_attempts=3, no_retry_exit_codes=frozenset({75}))
    assert isinstance(after(Throttle(1), policy)[1], DeadLetter)
