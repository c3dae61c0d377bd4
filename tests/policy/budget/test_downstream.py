"""Downstreams are called no more than their limits allow, and tenants share them fairly."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import Invalid
from duly.model.queues.downstream import Downstream, check_uses, format_rate, parse_rate
from duly.policy.budget.downstream import (
    BURST_SECONDS,
    MIN_FACTOR,
    DownstreamBudget,
    KeyRoom,
    Served,
    TokenBucket,
    divide,
    is_closed,
    raise_factor,
    slots_left,
    throttle,
)

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def limit(**fields):
    defaults = {"id": 1, "tenant_id": 7, "key": "stripe", "rate": 100.0, "concurrency": 20}
    return Downstream(**{**defaults, "adaptive": True, **fields})


def seconds(number):
    return timedelta(seconds=number)


@given(
    rate=st.floats(0.01, 1000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 1000)), max_size=60),
)
def test_no_window_has_more_starts_than_the_rate_and_one_burst(rate, steps):
    now, bucket, starts = 100.0, TokenBucket(100.0), []
    for pause, wanted in steps:
        now += pause
        bucket.fill(rate, now)
        count = min(wanted, bucket.whole)
        bucket.take(count)
        starts.append((now, count))
    burst = max(1.0, rate * BURST_SECONDS)
    for first in range(len(starts)):
        total = 0
        for at, count in starts[first:]:
            total += count
            assert total <= rate * (at - starts[first][0]) + burst + 1e-6


def test_a_bucket_begins_empty_and_says_when_the_next_token_comes():
    bucket = TokenBucket(0.0)
    bucket.fill(5, 0.0)
    assert bucket.whole == 0
    assert bucket.seconds_until_next(5) == pytest.approx(0.2)
    bucket.fill(5, 0.2)
    assert (bucket.whole, bucket.seconds_until_next(5)) == (1, 0.0)


def test_tokens_of_a_fast_rate_are_waited_for_together():
    assert TokenBucket(0.0).seconds_until_next(1000) == 0.05


@given(
    concurrency=st.integers(1, 1000),
    factor=st.floats(MIN_FACTOR, 1),
    running=st.integers(0, 2000),
)
def test_never_more_run_than_the_concurrency_and_one_may_always_try(concurrency, factor, running):
    lowered = limit(concurrency=concurrency, factor=factor)
    assert 1 <= lowered.current_concurrency <= concurrency
    left = slots_left(lowered, running)
    assert left == 0 or running + left <= concurrency


@given(offsets=st.lists(st.floats(0, 0.99), min_size=1, max_size=20))
def test_the_reports_of_one_burst_halve_once(offsets):
    state = limit()
    for offset in sorted(offsets):
        state = throttle(state, NOW + seconds(offset), 0.0)
    assert state.factor == 0.5
    assert state.current_concurrency == 10


def test_reports_before_calls_are_tried_again_do_not_halve():
    state = throttle(limit(), NOW, 30.0)
    assert is_closed(state, NOW + seconds(29)) and not is_closed(state, NOW + seconds(30))
    assert throttle(state, NOW + seconds(20), 0.0).factor == 0.5
    assert throttle(state, NOW + seconds(31), 0.0).factor == 0.25


@given(times=st.integers(1, 50))
def test_limits_are_never_halved_away(times):
    state = limit()
    for number in range(times):
        state = throttle(state, NOW + seconds(2 * number), 0.0)
    assert state.factor >= MIN_FACTOR
    assert state.current_concurrency >= 1 and state.current_rate > 0


def test_a_limit_that_is_not_adaptive_stays():
    fixed = limit(adaptive=False)
    assert throttle(fixed, NOW, 5.0) is fixed


def test_a_pause_is_bounded_and_shorter_where_tenants_share():
    assert throttle(limit(), NOW, 1e9).retry_at == NOW + seconds(3600)
    assert throttle(limit(tenant_id=None), NOW, 1e9).retry_at == NOW + seconds(60)


def test_successes_raise_a_lowered_limit_slowly_up_to_the_configured_one():
    state = throttle(limit(), NOW, 0.0)
    assert raise_factor(state, 0.5) is state
    raised = raise_factor(state, 1.0)
    assert raised.factor == pytest.approx(0.5 + 1 / 60)
    for _ in range(60):
        raised = raise_factor(raised, 1.0)
    assert raised.factor == 1.0
    assert raise_factor(state, 1000.0).factor < 0.7


@given(
    weights=st.dictionaries(st.integers(1, 9), st.integers(1, 5), min_size=1),
    count=st.integers(0, 200),
)
def test_everything_is_granted_and_to_nobody_else(weights, count):
    grants = divide(count, weights, None, dict.fromkeys(weights, 0.0))
    assert sum(grants.values()) == count
    assert grants.keys() == weights.keys()


@given(weights=st.dictionaries(st.integers(1, 9), st.integers(1, 5), min_size=2))
def test_backlogged_tenants_are_served_by_weight_one_token_at_a_time(weights):
    served, starts = Served(), Counter()
    rounds = 100 * sum(weights.values())
    for _ in range(rounds):
        for tenant, count in divide(1, weights, None, served.begin(weights)).items():
            served.serve(tenant, count, weights[tenant])
            starts[tenant] += count
    for tenant, weight in weights.items():
        assert starts[tenant] == pytest.approx(100 * weight, rel=0.05)


def test_slots_go_to_whoever_holds_the_fewest():
    grants = divide(4, {1: 1, 2: 1}, {1: 6}, {1: 0.0, 2: 5.0})
    assert grants == {1: 0, 2: 4}


def test_a_tenant_that_was_away_saves_nothing_up():
    served = Served()
    served.begin({1})
    served.serve(1, 1000, 1)
    assert dict(served.begin({1, 2})) == {1: 1000.0, 2: 1000.0}


def test_both_definitions_of_a_key_apply_and_are_charged():
    own, shared = limit(id=1), limit(id=2, tenant_id=None)
    budget = DownstreamBudget(
        {(7, "stripe"): KeyRoom(own, 2), (None, "stripe"): KeyRoom(shared, 9, {7: 5, 8: 4})}
    )
    assert (budget.room(7, ["stripe"]), budget.room(8, ["stripe"])) == (2, 4)
    copy = budget.copy()
    for _ in range(2):
        budget.charge(7, ["stripe"])
    assert budget.blocking(7, ["stripe"]) is own
    assert budget.blocking(9, ["stripe"]) is shared
    assert copy.room(7, ["stripe"]) == 2
    assert budget.rooms[None, "stripe"].idle == {7, 8}
    assert budget.room(7, ["undefined"]) > 1_000_000


@pytest.mark.parametrize("text", ["100/s", "30/m", "1000/h", "1/h", "2.5/s"])
def test_a_rate_is_shown_as_it_was_written(text):
    assert format_rate(parse_rate(text)) == ("150/m" if text == "2.5/s" else text)


@pytest.mark.parametrize("text", ["", "100", "100/d", "-1/s", "0/s", "1e9/s", "9999999/s", "ten/s"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(Invalid):
        parse_rate(text)


def test_the_keys_of_a_task_are_sorted_unique_and_few():
    assert check_uses(["b", "a", "b"]) == ("a", "b")
    for keys in (list("abcde"), [" "], ["x" * 201], ["a\0"]):
        with pytest.raises(Invalid):
            check_uses(keys)


def test_unchanged_fields_survive_throttling():
    before = limit(rate=None)
    after = throttle(before, NOW, 2.0)
    kept = msgspec.structs.replace(after, factor=1.0, throttled_at=None, retry_at=None)
    assert kept == before
