from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.client.call import Call, parse_json
from duly.client.retry import NoAnswer, Patience, may_repeat, pause
from duly.errors import LimitExceeded, Unavailable

REPEATABLE = Call("GET", "/", parse_json, repeatable=True)
ONCE = Call("POST", "/", parse_json)
REFUSED = NoAnswer("refused", sent=False)
CUT = NoAnswer("cut", sent=True)
UNTRUSTED = NoAnswer("untrusted", sent=False, hopeless=True)
BUSY = Unavailable("busy", timedelta(seconds=1))
LIMITED = LimitExceeded("Limit exceeded.", timedelta(seconds=2))


@pytest.mark.parametrize(
    ("call", "trouble", "repeated"),
    [
        (REPEATABLE, REFUSED, True),
        (REPEATABLE, CUT, True),
        (REPEATABLE, BUSY, True),
        (REPEATABLE, LIMITED, True),
        (REPEATABLE, UNTRUSTED, False),
        (ONCE, REFUSED, True),
        (ONCE, LIMITED, True),
        (ONCE, CUT, False),
        (ONCE, BUSY, False),
    ],
)
def test_only_what_cannot_be_done_twice_is_sent_twice(call, trouble, repeated):
    assert may_repeat(call, trouble) is repeated


def test_another_server_is_asked_at_once():
    pauses = [
        pause(Patience(), REFUSED, tries=tries, servers=3, elapsed=0.0, jitter=1.0)
        for tries in (1, 2, 3)
    ]
    assert pauses == [0.0, 0.0, 0.1]


def test_what_the_server_asks_for_is_waited_for():
    assert pause(Patience(), LIMITED, tries=1, servers=1, elapsed=0.0, jitter=0.0) == 2.0


def test_those_who_were_turned_away_together_come_back_one_by_one():
    pauses = [
        pause(Patience(), LIMITED, tries=1, servers=1, elapsed=0.0, jitter=jitter)
        for jitter in (0.0, 0.5, 1.0)
    ]
    assert pauses == [2.0, 3.0, 4.0]


def test_a_limit_that_lasts_longer_than_our_patience_is_told_at_once():
    hour = LimitExceeded("Limit exceeded.", timedelta(hours=1))
    assert pause(Patience(), hour, tries=1, servers=1, elapsed=0.0, jitter=0.0) is None


@st.composite
def patiences(draw):
    base, cap = sorted(draw(st.lists(st.integers(1, 10**8), min_size=2, max_size=2)))
    total = draw(st.integers(0, 10**9))
    return Patience(
        timedelta(milliseconds=total), timedelta(milliseconds=base), timedelta(milliseconds=cap)
    )


@given(
    patience=patiences(),
    trouble=st.sampled_from([REFUSED, CUT, BUSY, LIMITED]),
    tries=st.integers(1, 10**6),
    servers=st.integers(1, 100),
    elapsed=st.floats(0, 10**7),
    jitter=st.floats(0, 1),
)
def test_patience_is_never_overdrawn(patience, trouble, tries, servers, elapsed, jitter):
    delay = pause(patience, trouble, tries=tries, servers=servers, elapsed=elapsed, jitter=jitter)
    if isinstance(trouble, NoAnswer) and tries < servers:
        assert delay == 0.0  # whoever was not asked yet may be well
    elif delay is not None:
        assert delay >= 0
        assert elapsed + delay <= patience.total.total_seconds() + 1e-6
        assert delay <= patience.max_delay.total_seconds() + 2.0
