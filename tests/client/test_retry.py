from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.client.call import Call, parse_json
from duly.client.retry import NoResponse, Patience, is_safe_to_retry, retry_delay
from duly.errors import LimitExceeded, Unavailable

REPEATABLE = Call("GET", "/", parse_json, repeatable=True)
ONCE = Call("POST", "/", parse_json)
REFUSED = NoResponse("refused", sent=False)
CLOSED = NoResponse("closed", sent=True)
UNTRUSTED = NoResponse("untrusted", sent=False, permanent=True)
BUSY = Unavailable("busy", timedelta(seconds=1))
LIMITED = LimitExceeded("Limit exceeded.", timedelta(seconds=2))


@pytest.mark.parametrize(
    ("call", "failure", "retried"),
    [
        (REPEATABLE, REFUSED, True),
        (REPEATABLE, CLOSED, True),
        (REPEATABLE, BUSY, True),
        (REPEATABLE, LIMITED, True),
        (REPEATABLE, UNTRUSTED, False),
        (ONCE, REFUSED, True),
        (ONCE, LIMITED, True),
        (ONCE, CLOSED, False),
        (ONCE, BUSY, False),
    ],
)
def test_a_call_is_retried_only_if_it_cannot_be_carried_out_twice(call, failure, retried):
    assert is_safe_to_retry(call, failure) is retried


def test_the_next_server_is_tried_without_delay():
    delays = [
        retry_delay(Patience(), REFUSED, tries=tries, servers=3, elapsed=0.0, jitter=1.0)
        for tries in (1, 2, 3)
    ]
    assert delays == [0.0, 0.0, 0.1]


def test_retry_after_is_respected():
    assert retry_delay(Patience(), LIMITED, tries=1, servers=1, elapsed=0.0, jitter=0.0) == 2.0


def test_jitter_spreads_clients_that_were_rejected_together():
    delays = [
        retry_delay(Patience(), LIMITED, tries=1, servers=1, elapsed=0.0, jitter=jitter)
        for jitter in (0.0, 0.5, 1.0)
    ]
    assert delays == [2.0, 3.0, 4.0]


def test_a_limit_that_outlasts_the_patience_is_not_waited_for():
    hour = LimitExceeded("Limit exceeded.", timedelta(hours=1))
    assert retry_delay(Patience(), hour, tries=1, servers=1, elapsed=0.0, jitter=0.0) is None


def test_a_server_that_cannot_be_reached_may_be_given_up_sooner():
    patience = Patience(total=timedelta(seconds=20), unreachable=timedelta(seconds=2))

    def delay(failure, elapsed):
        return retry_delay(patience, failure, tries=5, servers=1, elapsed=elapsed, jitter=0.1)

    assert delay(REFUSED, 1.0) is not None
    assert delay(REFUSED, 3.0) is None
    assert delay(BUSY, 3.0) is not None
    assert delay(BUSY, 21.0) is None


@st.composite
def patiences(draw):
    base, cap = sorted(draw(st.lists(st.integers(1, 10**8), min_size=2, max_size=2)))
    total = draw(st.integers(0, 10**9))
    return Patience(
        timedelta(milliseconds=total), timedelta(milliseconds=base), timedelta(milliseconds=cap)
    )


@given(
    patience=patiences(),
    failure=st.sampled_from([REFUSED, CLOSED, BUSY, LIMITED]),
    tries=st.integers(1, 10**6),
    servers=st.integers(1, 100),
    elapsed=st.floats(0, 10**7),
    jitter=st.floats(0, 1),
)
def test_retries_never_exceed_the_patience(patience, failure, tries, servers, elapsed, jitter):
    delay = retry_delay(
        patience, failure, tries=tries, servers=servers, elapsed=elapsed, jitter=jitter
    )
    if isinstance(failure, NoResponse) and tries < servers:
        assert delay == 0.0  # a server that was not tried yet may be healthy
    elif delay is not None:
        assert delay >= 0
        assert elapsed + delay <= patience.total.total_seconds() + 1e-6
        assert delay <= patience.max_delay.total_seconds() + 2.0
