"""What a task may ask of its retries, and what the policy makes of it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.task import Outcome, RetryTerms, Tally
from duly.policy.retry import DeadLetter, Retry, RetryPolicy, backoff, decide, with_terms

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SERVER = RetryPolicy(base_delay=timedelta(seconds=5), max_delay=timedelta(hours=1))


def seconds(number):
    return timedelta(seconds=number)


def after(outcome, terms, *, failures=1, exit_code=3):
    return decide(
        with_terms(SERVER, terms),
        outcome,
        Tally(failures, 0),
        is_cancelled=False,
        exit_code=exit_code,
        now=NOW,
        jitter=0.0,
    )


def test_a_task_without_terms_follows_the_server():
    assert with_terms(SERVER, None) == SERVER
    assert with_terms(SERVER, RetryTerms()) == SERVER


@pytest.mark.parametrize(
    ("terms", "base", "longest"),
    [
        (RetryTerms(delay=20), 20, 3600),
        (RetryTerms(delay=7200), 7200, 7200),
        (RetryTerms(max_delay=60), 5, 60),
        (RetryTerms(max_delay=1), 1, 1),
        (RetryTerms(delay=0), 0, 3600),
        (RetryTerms(delay=10, max_delay=10), 10, 10),
    ],
)
def test_what_a_task_says_goes_before_what_it_leaves_out(terms, base, longest):
    policy = with_terms(SERVER, terms)
    assert (policy.base_delay, policy.max_delay) == (seconds(base), seconds(longest))


def test_an_exit_code_that_is_not_retried_ends_the_task_at_its_first_attempt():
    decision = after(Outcome.FAILED, RetryTerms(no_retry_exit_codes=[3, 4]))
    assert isinstance(decision, DeadLetter)
    assert decision.reason.code == "exit_code_not_retried"
    assert "exit code 3" in decision.reason.message


@pytest.mark.parametrize(
    ("outcome", "exit_code"),
    [(Outcome.FAILED, 5), (Outcome.FAILED, None), (Outcome.CAPPED, 3), (Outcome.LOST, 3)],
)
def test_other_ends_are_retried(outcome, exit_code):
    decision = after(outcome, RetryTerms(no_retry_exit_codes=[3, 4]), exit_code=exit_code)
    assert isinstance(decision, Retry)


@given(delay=st.floats(0, 86_400), failures=st.integers(1, 10_000), jitter=st.floats(0, 1))
def test_no_retry_comes_before_the_requested_delay_or_a_tenth_after_it(delay, failures, jitter):
    policy = with_terms(SERVER, RetryTerms(delay=delay))
    waited = backoff(policy, failures, jitter)
    assert policy.base_delay <= waited <= policy.max_delay
    if failures == 1:
        assert waited <= policy.base_delay * 1.1 + timedelta(microseconds=1)
