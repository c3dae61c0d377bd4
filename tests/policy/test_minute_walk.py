"""Fire times against a walk through every minute, which knows nothing of how they are found.

The walk watches the clock on the wall. A minute counts when the clock shows it for the first
time; when the clock jumps, the minutes that it jumped over count there. So nothing of time
zones is computed here but what the clock shows. Ten years of all zones take minutes, and so
they need DULY_TORTURE; otherwise it is the hours around every change of the clock, and two days.
"""

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly.model.recurrence_request import RecurrenceRequest, read_recurrence
from duly.policy.recurrence import between

ZONES = {
    "Europe/Berlin": 2020,
    "America/New_York": 2020,
    "Australia/Lord_Howe": 2020,
    "Asia/Kathmandu": 2020,
    "Pacific/Apia": 2008,
    "Africa/Casablanca": 2012,
    "America/Sao_Paulo": 2010,
}
"""Where to walk, and from which year on: there were changes of all kinds in these."""
YEARS = 10
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def is_last_day(wall):
    return (wall + DAY).month != wall.month


def is_nth(wall, weekday, count):
    return wall.weekday() == weekday and (wall.day - 1) // 7 == count - 1


MATCHES = {
    "15 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 15),
    "0 0 * * *": lambda wall: (wall.hour, wall.minute) == (0, 0),
    "*/25 1-3 * * *": lambda wall: wall.hour in (1, 2, 3) and wall.minute in (0, 25, 50),
    "30 2 L * *": lambda wall: (wall.hour, wall.minute) == (2, 30) and is_last_day(wall),
    "10 2 31 3,10,12 sun": lambda wall: (
        (wall.hour, wall.minute) == (2, 10)
        and wall.month in (3, 10, 12)
        and (wall.day == 31 or wall.weekday() == 6)
    ),
    "5 1,2 * * sunL,sun#2": lambda wall: (
        wall.hour in (1, 2)
        and wall.minute == 5
        and wall.weekday() == 6
        and ((wall + 7 * DAY).month != wall.month or is_nth(wall, 6, 2))
    ),
}


def walk(zone, first, last):
    """Yield each minute, and what the clock shows for the first time then: none, one or many."""
    shown = last_shown = (first - MINUTE).astimezone(zone).replace(tzinfo=None)
    instant = first
    while instant <= last:
        now = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        news = []
        if now > last_shown:
            news = [now]
            # Only a jump shows more than one minute on.
            missing = now - MINUTE
            while missing > shown and now - shown > MINUTE:
                news.append(missing)
                missing -= MINUTE
            last_shown = now
        shown = now
        yield instant, news
        instant += MINUTE


def changes(zone, first, last):
    """Return the hours in which the clock is set."""
    hours = range(int((last - first) / HOUR))
    offsets = [(first + number * HOUR).astimezone(zone).utcoffset() for number in hours]
    return [
        first + (number - 1) * HOUR
        for number in hours[1:]
        if offsets[number] != offsets[number - 1]
    ]


def compare(name, first, last):
    zone = ZoneInfo(name)
    expected = {expression: [] for expression in MATCHES}
    for instant, news in walk(zone, first, last):
        for expression, matches in MATCHES.items():
            if any(matches(wall) for wall in news):
                expected[expression].append(instant)
    for expression, times in expected.items():
        recurrence = read_recurrence(RecurrenceRequest(cron=expression, timezone=name), now=first)
        found = between(recurrence, first - MINUTE, last, most=10**6)
        assert found == times, (name, expression, first)


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
