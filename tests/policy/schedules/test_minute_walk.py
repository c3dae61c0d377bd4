"""Fire times against a walk through every minute, which knows nothing of how they are found.

The walk watches the clock on the wall. A minute counts when the clock shows it for the first
time; when the clock jumps, the minutes that it jumped over count there. So nothing of time
zones is computed here but what the clock shows. It goes in whole minutes, as integers, and
reads the clock every quarter of an hour: only where it has been set meanwhile does it look at
each minute. Ten years of all zones take minutes, and so they need DULY_TORTURE; otherwise it is
the hours around every change of the clock, and two days.
"""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.policy.schedules.recurrence import between

ZONES = {
    "Europe/Berlin": 2020,
    "America/New_York": 2020,
    "Australia/Lord_Howe": 2020,
    "Asia/Kathmandu": 2020,
    "Pacific/Apia": 2008,
    "Africa/Casablanca": 2012,
    "America/Sao_Paulo": 2010,
    "America/St_Johns": 2005,
    "Antarctica/Troll": 2018,
    "Europe/Dublin": 2020,
    "Asia/Pyongyang": 2012,
    "Africa/Cairo": 2010,
}
"""Where to walk, and from which year on: there were changes of all kinds in these."""
YEARS = 10
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1)
QUARTER = 15


class Rule(NamedTuple):
    """A recurrence, and which days and which minutes of a day it means, said in another way."""

    asked: dict[str, str]
    is_its_day: Callable[[datetime], bool]
    times: set[int]


def at(*times):
    """Return minutes of the day: at(215) is a quarter past two."""
    return {time // 100 * 60 + time % 100 for time in times}


def is_any(day):
    return True


def is_last_day(day):
    return (day + DAY).month != day.month


def is_nth(day, weekday, count):
    return day.weekday() == weekday and (day.day - 1) // 7 == count - 1


RULES = [
    Rule({"cron": "15 2 * * *"}, is_any, at(215)),
    Rule({"cron": "0 0 * * *"}, is_any, at(0)),
    Rule({"cron": "1 0 * * *"}, is_any, at(1)),
    Rule({"cron": "*/30 * * * *"}, is_any, set(range(0, 1440, 30))),
    Rule({"cron": "*/25 1-3 * * *"}, is_any, at(100, 125, 150, 200, 225, 250, 300, 325, 350)),
    Rule({"cron": "30 2 L * *"}, is_last_day, at(230)),
    Rule(
        {"cron": "10 2 31 3,10,12 sun"},
        lambda day: day.month in (3, 10, 12) and (day.day == 31 or day.weekday() == 6),
        at(210),
    ),
    Rule(
        {"cron": "5 1,2 * * sunL,sun#2"},
        lambda day: (
            day.weekday() == 6 and ((day + 7 * DAY).month != day.month or is_nth(day, 6, 2))
        ),
        at(105, 205),
    ),
    Rule({"cron": "0 6 */2 * fri"}, lambda day: day.day % 2 == 1 and day.weekday() == 4, at(600)),
    Rule({"daily": "23:59"}, is_any, at(2359)),
    Rule({"weekly": "sun,fri@00:30"}, lambda day: day.weekday() in (4, 6), at(30)),
    Rule({"monthly": "30@02:00"}, lambda day: day.day == 30 or is_last_february(day), at(200)),
    Rule({"monthly": "30@02:00", "short_month": "skip"}, lambda day: day.day == 30, at(200)),
    Rule({"annually": "02-29@12:00"}, lambda day: is_last_february(day), at(1200)),
]


def is_last_february(day):
    return day.month == 2 and is_last_day(day)


def shown(zone, minute):
    """Return what the clock shows, in minutes, when so many have passed since 1970."""
    wall = datetime.fromtimestamp(minute * 60, zone).replace(tzinfo=None, fold=0)
    return (wall - EPOCH) // MINUTE


def walk(zone, first: int, last: int) -> Iterator[tuple[int, range]]:
    """Yield each minute with the minutes that the clock shows for the first time then."""
    latest = shown(zone, first - 1)
    for begin in range(first, last + 1, QUARTER):
        end = min(begin + QUARTER, last + 1)
        ahead = shown(zone, begin - 1) - (begin - 1)
        is_steady = shown(zone, end - 1) - (end - 1) == ahead
        for minute in range(begin, end):
            now = minute + ahead if is_steady else shown(zone, minute)
            if now > latest:
                # Only a jump shows more than one minute on.
                yield minute, range(latest + 1, now + 1)
                latest = now


class Calendar:
    """Tells which rules mean a minute that the clock shows."""

    def __init__(self) -> None:
        self._meant = {
            time: [number for number, rule in enumerate(RULES) if time in rule.times]
            for time in set().union(*(rule.times for rule in RULES))
        }
        self._days: dict[int, list[bool]] = {}

    def rules_of(self, wall: int) -> list[int]:
        day, time = divmod(wall, 1440)
        meant = self._meant.get(time)
        if meant is None:
            return []
        if day not in self._days:
            date = EPOCH + day * DAY
            self._days[day] = [rule.is_its_day(date) for rule in RULES]
        is_day = self._days[day]
        return [number for number in meant if is_day[number]]


def changes(zone, first, last):
    """Return the hours in which the clock is set."""
    hours = range(int((last - first) / HOUR))
    offsets = [(first + number * HOUR).astimezone(zone).utcoffset() for number in hours]
    return [
        first + (number - 1) * HOUR
        for number in hours[1:]
        if offsets[number] != offsets[number - 1]
    ]


def minutes_of(instant):
    return int(instant.timestamp()) // 60


def compare(name, first, last):
    zone, calendar = ZoneInfo(name), Calendar()
    expected: list[list[int]] = [[] for _ in RULES]
    for minute, news in walk(zone, minutes_of(first), minutes_of(last)):
        for number in {number for wall in news for number in calendar.rules_of(wall)}:
            expected[number].append(minute)
    for rule, times in zip(RULES, expected, strict=True):
        recurrence = parse_recurrence(RecurrenceRequest(**rule.asked, timezone=name), now=first)
        found = between(recurrence, first - MINUTE, last, limit=10**6)
        assert [minutes_of(one) for one in found] == times, (name, rule.asked, first)
        assert all(one.second == one.microsecond == 0 for one in found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ZONES)
def test_fire_times_are_the_minutes_at_which_the_clock_shows_them(name):
    first = datetime(ZONES[name], 1, 1, tzinfo=UTC)
    last = first.replace(year=first.year + YEARS)
    if os.environ.get("DULY_TORTURE"):
        compare(name, first, last)
        return
    compare(name, first, first + 2 * DAY)
    for hour in changes(ZoneInfo(name), first, last):
        compare(name, hour - 3 * HOUR, hour + 4 * HOUR)
