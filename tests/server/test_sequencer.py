"""Ids are unique and rise, whatever clocks, bursts and changes of number do."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import clock
from duly.errors import Unavailable
from duly.server.sequencer import EPOCH, SEQUENCE_BITS, Sequencer

START = 27_500_000


class Time:
    """Two clocks that a test moves: the process's own, and PostgreSQL's."""

    def __init__(self):
        self.monotonic = 1000.0
        self.ahead = 0.0

    @property
    def now(self):
        return EPOCH + timedelta(seconds=START + self.monotonic - 1000.0 + self.ahead)

    def second(self):
        return int((self.now - EPOCH).total_seconds())


@pytest.fixture
def time(monkeypatch):
    time = Time()
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic)
    return time


def second_of(minted):
    return minted >> 31


def test_a_number_mints_nothing_before_its_mark_is_stored(time):
    sequencer = Sequencer()
    sequencer.begin(1, above=0, now=time.now)
    with pytest.raises(Unavailable):
        sequencer.mint()
    sequencer.extend(sequencer.next_mark, time.now)
    sequencer.mint()
    # The mark of the number before says nothing about the next one.
    sequencer.begin(2, above=0, now=time.now)
    with pytest.raises(Unavailable):
        sequencer.mint()


def test_a_number_leased_again_starts_above_its_mark(time):
    mark = time.second() + 500
    sequencer = Sequencer()
    sequencer.begin(1, above=mark, now=time.now)
    sequencer.extend(sequencer.next_mark, time.now)
    assert second_of(sequencer.mint()) > mark


def test_a_burst_borrows_from_the_next_second_up_to_the_mark(time):
    sequencer = Sequencer()
    sequencer.begin(1, above=0, now=time.now)
    mark = time.second() + 1
    sequencer.extend(mark, time.now)
    minted = []
    with pytest.raises(Unavailable):
        while True:
            minted.append(sequencer.mint())
    assert len(minted) == len(set(minted)) == 2 << SEQUENCE_BITS
    assert minted == sorted(minted)
    assert second_of(minted[-1]) == mark


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("mint"), st.integers(1, 50)),
        st.tuples(st.just("pass"), st.floats(0, 20)),
        st.tuples(st.just("jump"), st.floats(-100, 100)),
        st.tuples(st.just("extend"), st.just(0)),
        st.tuples(st.just("change"), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_ids_rise_under_a_number_and_never_pass_its_stored_mark(steps):
    time = Time()
    marks = dict.fromkeys(range(4), 0)
    seen, last, number = set(), {}, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic", lambda: time.monotonic)
        sequencer = Sequencer()
        sequencer.begin(number, above=0, now=time.now)
        for step, amount in steps:
            match step:
                case "pass":
                    time.monotonic += amount
                case "jump":
                    time.ahead += amount
                case "extend":
                    marks[number] = max(marks[number], sequencer.next_mark)
                    sequencer.extend(marks[number], time.now)
                case "change":
                    number = amount
                    sequencer.begin(number, above=marks[number], now=time.now)
                case "mint":
                    for _ in range(amount):
                        try:
                            minted = sequencer.mint()
                        except Unavailable:
                            break
                        assert minted not in seen
                        assert minted > last.get(number, 0)
                        assert second_of(minted) <= marks[number]
                        assert (minted >> SEQUENCE_BITS) & 255 == number
                        seen.add(minted)
                        last[number] = minted
