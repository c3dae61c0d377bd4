import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.policy.guesses import EVERY, TRIES, Guesses, give_back, take


def test_a_few_may_go_wrong_in_a_row_and_one_comes_back_with_time():
    guesses = Guesses(at=0.0)
    for _ in range(TRIES):
        taken = take(guesses, 0.0)
        assert taken.wait == 0
        guesses = taken.left_over
    refused = take(guesses, 0.0)
    assert refused.wait == EVERY
    assert take(refused.left_over, EVERY - 1).wait == pytest.approx(1)
    assert take(refused.left_over, EVERY).wait == 0


def test_a_right_password_gives_its_try_back():
    guesses = Guesses(at=0.0)
    for now in range(100):
        taken = take(guesses, 0.001 * now)
        assert taken.wait == 0
        guesses = give_back(taken.left_over, 0.001 * now)
    assert guesses.left == TRIES


@given(st.lists(st.floats(0, 100), max_size=60))
def test_never_more_go_wrong_than_there_were_and_came_back(pauses):
    guesses, now, wrong = Guesses(at=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken = take(guesses, now)
        guesses = taken.left_over
        wrong += taken.wait == 0
        assert wrong <= TRIES + now / EVERY + 1e-6
