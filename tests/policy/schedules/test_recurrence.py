"""Fire times at the edges: short months, clocks that are set, bounds, and what never comes."""

from datetime import UTC, datetime, time, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.policy.schedules import recurrence as policy
from duly.policy.schedules.recurrence import between, fire_times, is_possible, next_after

NOW = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)


def recurrence(**fields):
    return parse_recurrence(RecurrenceRequest(**fields), now=NOW)


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def firsts(count, after, **fields):
    """Return the first fire times after an instant, as the clock of their zone shows them."""
    times = islice(fire_times(recurrence(**fields), at(after)), count)
    return [one.strftime("%m-%d %H:%M:%S").removesuffix(":00") for one in times]


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({"daily": "06:30"}, ["11-17 06:30", "11-18 06:30"]),
        ({"daily": "08:30"}, ["11-17 08:30", "11-18 08:30"]),
        ({"daily": "08:30:01"}, ["11-16 08:30:01", "11-17 08:30:01"]),
        ({"weekly": "mon,thu@09:00"}, ["11-16 09:00", "11-19 09:00", "11-23 09:00"]),
        ({"monthly": "31@00:00"}, ["11-30 00:00", "12-31 00:00", "01-31 00:00", "02-28 00:00"]),
        (
            {"monthly": "31@00:00", "short_month": "skip"},
            ["12-31 00:00", "01-31 00:00", "03-31 00:00"],
        ),
        ({"monthly": "30,31@00:00"}, ["11-30 00:00", "12-30 00:00", "12-31 00:00"]),
        ({"annually": "02-29@00:00"}, ["02-28 00:00", "02-29 00:00", "02-28 00:00"]),
        (
            {"cron": "0 0 13 * fri"},
            ["11-20 00:00", "11-27 00:00", "12-04 00:00", "12-11 00:00", "12-13 00:00"],
        ),
        ({"cron": "0 0 */2 * fri"}, ["11-27 00:00", "12-11 00:00", "12-25 00:00"]),
        ({"cron": "0 0 * * mon#1,friL"}, ["11-27 00:00", "12-07 00:00", "12-25 00:00"]),
        ({"cron": "0 12 L * *"}, ["11-30 12:00", "12-31 12:00", "01-31 12:00", "02-28 12:00"]),
        ({"every": "PT3H"}, ["11-16 11:30", "11-16 14:30"]),
        ({"run_at": "2026-11-16T08:30:00.5Z"}, ["11-16 08:30"]),
    ],
)
def test_fire_times_come_in_order(fields, times):
    assert firsts(len(times), NOW.isoformat(), **fields) == times


def test_a_leap_day_that_must_not_be_moved_waits_for_a_leap_year():
    skip = recurrence(annually="02-29@00:00", short_month="skip")
    assert [one.year for one in islice(fire_times(skip, NOW), 3)] == [2028, 2032, 2036]
    assert next_after(skip, at("2096-03-01T00:00Z")).year == 2104
    fifth_monday = recurrence(cron="0 0 * feb mon#5")
    assert next_after(fifth_monday, NOW) == at("2044-02-29T00:00Z")


@pytest.mark.parametrize(
    ("zone", "after", "daily", "times"),
    [
        # Set forward from 02:00 to 03:00: the first instant after the gap, 03:00 by the wall.
        ("Europe/Berlin", "2027-03-27T12:00Z", "02:30", ["03-28 01:00", "03-29 00:30"]),
        ("Europe/Berlin", "2027-03-27T12:00Z", "03:00", ["03-28 01:00", "03-29 01:00"]),
        # Set back from 03:00 to 02:00: the first of two.
        ("Europe/Berlin", "2027-10-30T12:00Z", "02:30", ["10-31 00:30", "11-01 01:30"]),
        ("America/New_York", "2027-03-13T12:00Z", "02:00", ["03-14 07:00", "03-15 06:00"]),
        # Half an hour: from 02:00 to 02:30.
        ("Australia/Lord_Howe", "2026-10-03T00:00Z", "02:10", ["10-03 15:30", "10-04 15:10"]),
        ("Australia/Lord_Howe", "2027-04-03T00:00Z", "01:45", ["04-03 14:45", "04-04 15:15"]),
        ("Asia/Kathmandu", "2027-01-01T00:00Z", "00:00", ["01-01 18:15", "01-02 18:15"]),
        # At midnight, so that the day has no 00:00.
        ("America/Sao_Paulo", "2018-11-03T12:00Z", "00:00", ["11-04 03:00", "11-05 02:00"]),
        # A day that was left out: its times mean the first instant of the next one.
        (
            "Pacific/Apia",
            "2011-12-29T12:00Z",
            "06:30",
            ["12-29 16:30", "12-30 10:00", "12-30 16:30"],
        ),
    ],
)
def test_a_wall_time_that_does_not_exist_comes_after_the_gap_and_one_that_exists_twice_once(
    zone, after, daily, times
):
    assert firsts(len(times), after, daily=daily, timezone=zone) == times


def test_many_times_in_one_gap_are_one_fire_time():
    times = firsts(3, "2027-03-28T00:50Z", cron="*/20 * * * *", timezone="Europe/Berlin")
    assert times == ["03-28 01:00", "03-28 01:20", "03-28 01:40"]


def test_an_hour_that_comes_twice_is_silent_the_second_time():
    times = firsts(3, "2027-10-31T00:30Z", cron="*/20 * * * *", timezone="Europe/Berlin")
    assert times == ["10-31 00:40", "10-31 02:00", "10-31 02:20"]


def test_an_interval_counts_real_time_through_both():
    for after in ("2027-03-28T00:00Z", "2027-10-31T00:00Z"):
        hourly = recurrence(every="1h", start_at=after, timezone="Europe/Berlin")
        times = list(islice(fire_times(hourly, at(after)), 4))
        assert times == [at(after) + timedelta(hours=hours) for hours in (1, 2, 3, 4)]


def test_an_interval_stays_on_its_start_however_late_one_asks():
    every = recurrence(every="7m", start_at="2026-01-01T00:00:30Z")
    found = next_after(every, at("2031-06-01T12:34:56.789Z"))
    assert (found - at("2026-01-01T00:00:30Z")) % timedelta(minutes=7) == timedelta(0)
    assert timedelta(0) < found - at("2031-06-01T12:34:56.789Z") <= timedelta(minutes=7)


def test_nothing_fires_before_the_start_or_after_the_end_but_at_either_it_may():
    bounded = recurrence(
        daily="00:00", start_at="2027-01-01T00:00:00Z", end_at="2027-01-03T00:00:00Z"
    )
    assert [one.day for one in fire_times(bounded, NOW)] == [1, 2, 3]
    every = recurrence(every="1d", start_at="2027-01-01T00:00:00Z", end_at="2027-01-02T23:00:00Z")
    assert [one.day for one in fire_times(every, NOW)] == [1, 2]


def test_what_never_fires_is_found_out():
    for expression in ("0 0 31 2 *", "0 0 30,31 feb *", "0 0 31 2,4,6,9,11 *"):
        assert not is_possible(recurrence(cron=expression))
        assert next_after(recurrence(cron=expression), NOW) is None
    for expression in ("0 0 29 2 *", "0 0 31 2 mon", "0 0 * feb mon#5", "0 0 l 2 *"):
        assert is_possible(recurrence(cron=expression))


def test_times_between_two_instants_are_without_the_first_and_with_the_last():
    daily = recurrence(daily="00:00")
    found = between(daily, at("2027-01-01T00:00Z"), at("2027-01-04T00:00Z"), limit=100)
    assert [one.day for one in found] == [2, 3, 4]
    assert len(between(daily, NOW, at("2100-01-01T00:00Z"), limit=5)) == 5


@given(
    zone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]),
    expression=st.sampled_from(
        ["*/7 * * * *", "30 2 * * *", "0 0 l * *", "15 10 2 * * sun", "0 3 * 3,10 sunL"]
    ),
    seconds=st.integers(0, 10 * 365 * 86_400),
    micros=st.integers(0, 999_999),
)
def test_the_next_time_is_later_and_nothing_lies_between(zone, expression, seconds, micros):
    cron = recurrence(cron=expression, timezone=zone)
    instant = at("2020-01-01T00:00Z") + timedelta(seconds=seconds, microseconds=micros)
    found = next_after(cron, instant)
    assert found > instant
    # Whoever asks from anywhere in between is told the same.
    assert next_after(cron, instant + (found - instant) / 2) == found
    assert next_after(cron, found - timedelta(microseconds=1)) == found


def test_the_next_of_many_times_is_found_without_going_through_those_before_it(monkeypatch):
    looked_at = []
    monkeypatch.setattr(policy, "time", lambda *at: looked_at.append(at) or time(*at))
    every_second = recurrence(cron="* * * * * *")
    after = datetime(2027, 1, 1, 23, 59, 58, tzinfo=UTC)
    assert next_after(every_second, after) == after + timedelta(seconds=1)
    assert looked_at == [(23, 59, 59)]
