"""What becomes of a task when an attempt ends."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.task import LostStarts, OnLost, Outcome, Reason, Tally
from duly.policy.retry import (
    Cancel,
    DeadLetter,
    Finish,
    Retry,
    RetryPolicy,
    Throttle,
    Wish,
    backoff,
    count,
    decide,
)

NOW = datetime(2026, 11, 1, tzinfo=UTC)
POLICY = RetryPolicy(max_attempts=3, base_delay=timedelta(seconds=10))
FAULTS = (Outcome.FAILED, Outcome.CAPPED, Outcome.OVERUSED)


def after(outcome, failures=0, losses=0, policy=POLICY, *, cancelled=False, jitter=1.0):
    tally = Tally(failures, losses)
    return decide(policy, outcome, tally, is_cancelled=cancelled, now=NOW, jitter=jitter)


@pytest.mark.parametrize(
    ("outcome", "failures", "losses", "decision"),
    [
        (Outcome.SUCCEEDED, 0, 0, Finish()),
        (Outcome.SUCCEEDED, 2, 9, Finish()),
        (Outcome.CANCELLED, 2, 0, Cancel()),
        (Outcome.FAILED, 1, 0, Retry(NOW + timedelta(seconds=10), keeps_place=False)),
        (Outcome.CAPPED, 2, 0, Retry(NOW + timedelta(seconds=20), keeps_place=False)),
        (Outcome.PREEMPTED, 2, 5, Retry(NOW, keeps_place=True)),
        (Outcome.EXPIRED, 0, 0, Retry(NOW, keeps_place=True)),
        (Outcome.LOST, 0, 9, Retry(NOW, keeps_place=True)),
    ],
)
def test_each_outcome_leads_to_one_decision(outcome, failures, losses, decision):
    assert after(outcome, failures, losses) == decision


@pytest.mark.parametrize(
    ("outcome", "failures", "losses", "policy", "code"),
    [
        (Outcome.FAILED, 3, 0, POLICY, "attempts_exhausted"),
        (Outcome.OVERUSED, 4, 0, POLICY, "attempts_exhausted"),
        (Outcome.LOST, 0, 10, POLICY, "lost_too_often"),
        (Outcome.LOST, 0, 1, RetryPolicy(on_lost=OnLost.FAIL), "lost"),
    ],
)
def test_what_cannot_go_on_is_set_aside_with_the_reason(outcome, failures, losses, policy, code):
    decision = after(outcome, failures, losses, policy)
    assert isinstance(decision, DeadLetter)
    assert decision.reason.code == code


MINUTE = timedelta(minutes=1)
GAVE_UP = DeadLetter(Reason("gave_up", "It is not retried, as its function asked."))
LAST = DeadLetter(Reason("attempts_exhausted", "That was the last of 3 attempts."))


@pytest.mark.parametrize(
    ("outcome", "failures", "wish", "decision"),
    [
        (Outcome.FAILED, 1, Wish(MINUTE), Retry(NOW + MINUTE, keeps_place=False)),
        (Outcome.FAILED, 1, Wish(timedelta(0)), Retry(NOW, keeps_place=False)),
        (Outcome.FAILED, 3, Wish(MINUTE), LAST),
        (Outcome.FAILED, 1, Wish(gives_up=True), GAVE_UP),
        (Outcome.FAILED, 1, Wish(MINUTE, gives_up=True), GAVE_UP),
        (Outcome.CAPPED, 1, Wish(MINUTE, gives_up=True), after(Outcome.CAPPED, 1, jitter=0)),
        (Outcome.LOST, 0, Wish(MINUTE, gives_up=True), Retry(NOW, keeps_place=True)),
        (Outcome.SUCCEEDED, 0, Wish(MINUTE, gives_up=True), Finish()),
        (Outcome.EXPIRED, 0, Wish(MINUTE, gives_up=True), Retry(NOW, keeps_place=True)),
    ],
)
def test_what_a_function_asked_for_changes_what_follows_from_its_failure(
    outcome, failures, wish, decision
):
    tally = Tally(failures, 0)
    told = {"wish": wish, "is_cancelled": False, "now": NOW, "jitter": 0.0}
    assert decide(POLICY, outcome, tally, **told) == decision
    assert decide(POLICY, outcome, tally, **{**told, "is_cancelled": True}) == Cancel()


def test_a_delay_that_a_function_asked_for_is_spread_by_a_tenth_and_never_shortened():
    tally, wish = Tally(1, 0), Wish(MINUTE)
    latest = decide(
        POLICY, Outcome.FAILED, tally, wish=wish, is_cancelled=False, now=NOW, jitter=1.0
    )
    assert latest == Retry(NOW + MINUTE * 1.1, keeps_place=False)


def test_a_throttled_function_that_gives_up_is_not_retried():
    decision = decide(
        POLICY,
        Outcome.FAILED,
        Tally(0, 0),
        throttle=Throttle(1),
        wish=Wish(gives_up=True),
        is_cancelled=False,
        now=NOW,
        jitter=0.0,
    )
    assert decision == GAVE_UP


@pytest.mark.parametrize(
    ("attempts", "words"),
    [(1, "That was its only attempt."), (2, "That was the last of 2 attempts.")],
)
def test_the_reason_says_how_many_attempts_there_were(attempts, words):
    decision = after(Outcome.FAILED, attempts, 0, RetryPolicy(max_attempts=attempts))
    assert decision == DeadLetter(Reason("attempts_exhausted", words))


def lost(nodes, incarnations, cluster, policy=POLICY):
    starts = LostStarts(nodes, incarnations, cluster)
    tally = Tally(0, incarnations)
    return decide(
        policy, Outcome.LOST, tally, lost_starts=starts, is_cancelled=False, now=NOW, jitter=1.0
    )


APART = Retry(NOW + timedelta(seconds=20), keeps_place=False)
AT_ONCE = Retry(NOW, keeps_place=True)


@pytest.mark.parametrize(
    ("nodes", "incarnations", "cluster", "decision"),
    [
        (1, 1, 100, AT_ONCE),
        (2, 2, 100, APART),
        (2, 5, 100, APART),
        (1, 5, 3, AT_ONCE),
        (1, 1, 1, AT_ONCE),
        (1, 2, 1, APART),
        (2, 2, 2, APART),
    ],
)
def test_a_task_that_was_lost_at_its_start_is_tried_on_and_apart(
    nodes, incarnations, cluster, decision
):
    assert lost(nodes, incarnations, cluster) == decision


@pytest.mark.parametrize(
    ("nodes", "incarnations", "cluster"), [(3, 3, 3), (3, 5, 100), (1, 3, 1), (2, 3, 2)]
)
def test_a_task_that_three_were_lost_with_when_they_began_it_is_set_aside(
    nodes, incarnations, cluster
):
    decision = lost(nodes, incarnations, cluster)
    assert isinstance(decision, DeadLetter)
    assert decision.reason.code == "lost_at_start"


def test_how_many_nodes_it_may_be_lost_with_is_set_by_the_policy():
    patient = RetryPolicy(max_lost_starts=5)
    assert isinstance(lost(4, 4, 10, patient), Retry)
    assert isinstance(lost(5, 5, 10, patient), DeadLetter)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_task_that_was_to_be_cancelled_is_cancelled_however_it_ended(outcome):
    assert after(outcome, 3, 10, cancelled=True) == Cancel()


def test_a_lost_node_costs_the_task_no_attempt():
    assert count(Tally(2, 5), Outcome.LOST) == Tally(2, 6)


@given(st.sampled_from(Outcome), st.integers(0, 50), st.integers(0, 50))
def test_each_attempt_counts_once_at_most(outcome, failures, losses):
    tally = count(Tally(failures, losses), outcome)
    assert tally.failures - failures == (outcome in FAULTS)
    assert tally.losses - losses == (outcome is Outcome.LOST)


@st.composite
def policies(draw):
    base, most = sorted(draw(st.lists(st.integers(1, 10**11), min_size=2, max_size=2)))
    return RetryPolicy(
        max_attempts=draw(st.integers(1, 100)),
        on_lost=draw(st.sampled_from(OnLost)),
        base_delay=timedelta(milliseconds=base),
        max_delay=timedelta(milliseconds=most),
        max_losses=draw(st.integers(1, 50)),
    )


@given(policy=policies(), failures=st.integers(1, 10_000), jitter=st.floats(0, 1))
def test_a_delay_never_exceeds_the_cap(policy, failures, jitter):
    assert timedelta(0) <= backoff(policy, failures, jitter) <= policy.max_delay


@given(policies(), st.lists(st.sampled_from(Outcome), min_size=200, max_size=200), st.floats(0, 1))
def test_a_task_that_never_succeeds_is_not_retried_without_end(policy, outcomes, jitter):
    tally, tries = Tally(0, 0), 0
    for outcome in outcomes:
        if outcome in (Outcome.PREEMPTED, Outcome.EXPIRED):
            continue
        tally, tries = count(tally, outcome), tries + 1
        if not isinstance(after(outcome, *tally_of(tally), policy, jitter=jitter), Retry):
            break
    assert tries <= policy.max_attempts + policy.max_losses


def tally_of(tally):
    return tally.failures, tally.losses
