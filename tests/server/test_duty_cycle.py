from datetime import timedelta

import pytest

from duly import clock
from duly.server.duty_cycle import DutyCycle


@pytest.fixture
def at(monkeypatch):
    time = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def test_it_is_due_at_first_and_then_after_its_interval(at):
    pace = DutyCycle(timedelta(seconds=1))
    assert pace.is_due
    with pace.step():
        pass
    assert not pace.is_due
    at[0] += 1
    assert pace.is_due


def test_what_takes_long_is_done_seldom(at):
    pace = DutyCycle(timedelta(seconds=1))
    with pace.step():
        at[0] += 2
    at[0] += 37.9
    assert not pace.is_due
    at[0] += 0.2
    assert pace.is_due


def test_what_took_long_once_is_not_put_off_for_ever(at):
    pace = DutyCycle(timedelta(seconds=1), timedelta(seconds=3))
    with pace.step():
        at[0] += 2
    at[0] += 0.9
    assert not pace.is_due
    at[0] += 0.2
    assert pace.is_due


def test_those_who_do_it_share_the_time(at):
    pace = DutyCycle(timedelta(seconds=1))
    with pace.step(among=3):
        at[0] += 1
    at[0] += 58.9
    assert not pace.is_due
    at[0] += 0.2
    assert pace.is_due


def test_what_failed_stays_due(at):
    pace = DutyCycle(timedelta(seconds=1))
    with pytest.raises(ValueError), pace.step():
        raise ValueError
    assert pace.is_due


def test_it_can_be_hurried(at):
    pace = DutyCycle(timedelta(seconds=1))
    with pace.step():
        pass
    pace.make_due()
    assert pace.is_due
