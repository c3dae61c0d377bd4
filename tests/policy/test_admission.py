from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.model.bucket import Bucket, Rate
from duly.policy.admission import Admit, Refuse, RefuseForGood, decide, refill

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RATE = Rate(tasks_per_hour=3600, burst=10)


def seconds(number):
    return timedelta(seconds=number)


def bucket(tokens, at=NOW, rate=RATE):
    return Bucket(rate, tokens, at)


def test_a_bucket_fills_at_its_rate_up_to_its_burst():
    assert refill(bucket(2.5), NOW + seconds(3)) == bucket(5.5, NOW + seconds(3))
    assert refill(bucket(2.5), NOW + seconds(3000)).tokens == 10


def test_a_bucket_that_holds_more_than_its_plan_now_grants_loses_the_rest():
    assert refill(bucket(50), NOW).tokens == 10


def test_a_clock_that_was_set_back_takes_nothing_and_gives_nothing_twice():
    back = refill(bucket(2), NOW - seconds(60))
    assert back == bucket(2)
    assert refill(back, NOW + seconds(1)) == bucket(3, NOW + seconds(1))


def test_a_token_is_taken_for_every_task():
    assert decide(bucket(3.5), 3) == Admit(bucket(0.5))


def test_all_or_none_are_admitted_and_who_is_refused_learns_when_to_come_back():
    assert decide(bucket(3.5), 4) == Refuse(seconds(0.5))
    assert decide(bucket(0), 1) == Refuse(seconds(1))


def test_what_is_larger_than_the_burst_is_never_admitted():
    assert decide(bucket(10), 11) == RefuseForGood()
    assert decide(bucket(10), 10) == Admit(bucket(0))


@st.composite
def visits(draw):
    """Draw a rate, and who comes after how many microseconds with how many tasks."""
    rate = Rate(draw(st.integers(1, 10**7)), draw(st.integers(1, 1000)))
    steps = st.tuples(st.integers(0, 10**8), st.integers(1, 50))
    return rate, draw(st.lists(steps, min_size=1, max_size=30))


@given(visits())
def test_in_no_window_is_more_admitted_than_burst_and_rate_allow(drawn):
    rate, steps = drawn
    now, held, admitted = NOW, bucket(rate.burst, rate=rate), []
    for wait, tasks in steps:
        now += timedelta(microseconds=wait)
        held = refill(held, now)
        match decide(held, tasks):
            case Admit(left):
                held = left
                admitted.append((now, tasks))
            case Refuse(after):
                # Nobody else comes: at the time that was told there are enough. A microsecond
                # is what a clock can tell apart.
                then = now + after + timedelta(microseconds=1)
                assert isinstance(decide(refill(held, then), tasks), Admit)
    for first, (begin, _) in enumerate(admitted):
        total = 0
        for end, tasks in admitted[first:]:
            total += tasks
            window = (end - begin).total_seconds()
            assert total <= rate.burst + rate.per_second * window + 1e-6
