"""Ids are unique and rise, whatever clocks, bursts and changes of number do."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import clock
from duly.errors import Unavailable
from duly.server.sequencer import EPOCH, TICK_BITS, TICKS_PER_SECOND, Sequencer

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


def position_of(minted):
    return second_of(minted) * TICKS_PER_SECOND + minted % TICKS_PER_SECOND


def started(time, *, above=0):
    sequencer = Sequencer()
    sequencer.begin(1, above=above, now=time.now)
    sequencer.extend(sequencer.next_mark, time.now)
    return sequencer


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
    assert len(minted) == len(set(minted)) == 2 << TICK_BITS
    assert minted == sorted(minted)
    assert second_of(minted[-1]) == mark


@pytest.mark.parametrize("others", [0, 1, 500])
def test_an_id_tells_when_it_was_minted_and_not_how_many_others_were(time, others):
    sequencer = started(time)
    for _ in range(3):
        time.monotonic += 0.01
        assert position_of(sequencer.mint()) == int(
            (START + time.monotonic - 1000.0) * TICKS_PER_SECOND
        )
        time.monotonic += 0.01
        if others:
            sequencer.mint_many(others)


@pytest.mark.parametrize("others", [0, 1, 500])
def test_ids_tell_as_little_after_the_clock_was_set_back(time, others):
    sequencer = started(time)
    before = position_of(sequencer.mint())
    time.ahead -= 3600
    sequencer.extend(sequencer.next_mark, time.now)
    time.monotonic += 1
    if others:
        sequencer.mint_many(others)
    time.monotonic += 1
    after = position_of(sequencer.mint())
    # At half the clock's speed, by the tick that each has to itself at the least.
    assert TICKS_PER_SECOND <= after - before <= TICKS_PER_SECOND + 2


def test_ids_that_are_ahead_are_caught_up_with_by_the_clock(time):
    sequencer = started(time, above=time.second() + 5)
    for _ in range(15):
        time.monotonic += 1
        sequencer.extend(sequencer.next_mark, time.now)
        last = sequencer.mint()
    assert second_of(last) == time.second()


def test_a_number_that_mints_rarely_while_ahead_of_the_clock_is_not_stopped_by_its_mark(time):
    sequencer = started(time, above=time.second() + 3600)
    time.monotonic += 600
    sequencer.extend(sequencer.next_mark, time.now)
    assert second_of(sequencer.mint()) > time.second() + 3000


def test_many_ids_at_once_rise_also_across_a_second(time):
    sequencer = started(time)
    time.monotonic += 1.001
    minted = sequencer.mint_many(500)
    assert [position_of(one) for one in minted] == list(
        range(position_of(minted[0]), position_of(minted[0]) + 500)
    )
    assert second_of(minted[0]) == time.second() - 1
    assert second_of(minted[-1]) == time.second()
    assert sequencer.mint() > minted[-1]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("mint"), st.integers(1, 50)),
        st.tuples(st.just("mint at once"), st.integers(1, 300_000)),
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
                case "mint" | "mint at once":
                    rounds, count = (amount, 1) if step == "mint" else (1, amount)
                    for _ in range(rounds):
                        try:
                            minted = sequencer.mint_many(count)
                        except Unavailable:
                            break
                        assert len(minted) == count
                        assert minted[0] > last.get(number, 0)
                        assert second_of(minted[-1]) <= marks[number]
                        for one in {minted[0], minted[-1]}:
                            assert (one >> TICK_BITS) & 255 == number
                            assert one not in seen
                            seen.add(one)
                        last[number] = minted[-1]
