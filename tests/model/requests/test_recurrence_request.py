from datetime import UTC, datetime, timedelta

import pytest

from duly.errors import Invalid
from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.model.schedules.recurrence import (
    Calendar,
    FixedInterval,
    OneTime,
    RecurrenceKind,
    ShortMonth,
    TimesOfDay,
)

NOW = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
START = datetime(2027, 1, 1, tzinfo=UTC)
EARLY = TimesOfDay((6,), (30,))


def read(**fields):
    return parse_recurrence(RecurrenceRequest(**fields), now=NOW)


@pytest.mark.parametrize(
    ("fields", "kind", "rule"),
    [
        ({"run_at": "2027-01-01T01:00:00+01:00"}, RecurrenceKind.ONCE, OneTime(START)),
        ({"daily": "06:30"}, RecurrenceKind.DAILY, Calendar(times=EARLY)),
        ({"daily": "6:30:05"}, RecurrenceKind.DAILY, Calendar(times=TimesOfDay((6,), (30,), (5,)))),
        ({"weekly": "mon@06:30"}, RecurrenceKind.WEEKLY, Calendar(times=EARLY, weekdays=(0,))),
        (
            {"weekly": "Sun, wed@06:30"},
            RecurrenceKind.WEEKLY,
            Calendar(times=EARLY, weekdays=(2, 6)),
        ),
        (
            {"monthly": "31@06:30"},
            RecurrenceKind.MONTHLY,
            Calendar(times=EARLY, days=(31,), short_month=ShortMonth.LAST),
        ),
        (
            {"monthly": "1,30@06:30", "short_month": "skip"},
            RecurrenceKind.MONTHLY,
            Calendar(times=EARLY, days=(1, 30)),
        ),
        (
            {"annually": "02-29@06:30"},
            RecurrenceKind.ANNUALLY,
            Calendar(times=EARLY, months=(2,), days=(29,), short_month=ShortMonth.LAST),
        ),
        (
            {"annually": "dec-24@06:30", "short_month": "skip"},
            RecurrenceKind.ANNUALLY,
            Calendar(times=EARLY, months=(12,), days=(24,)),
        ),
        ({"every": "PT3H"}, RecurrenceKind.EVERY, FixedInterval(timedelta(hours=3), NOW)),
        ({"every": 90}, RecurrenceKind.EVERY, FixedInterval(timedelta(seconds=90), NOW)),
        (
            {"every": "15m", "start_at": "2027-01-01T00:00:00Z"},
            RecurrenceKind.EVERY,
            FixedInterval(timedelta(minutes=15), START),
        ),
    ],
)
def test_each_way_to_write_it_becomes_a_rule(fields, kind, rule):
    recurrence = read(**fields)
    assert (recurrence.kind, recurrence.rule) == (kind, rule)


def test_zone_bounds_and_jitter_are_read():
    recurrence = read(
        daily="06:30",
        timezone="Europe/Berlin",
        start_at="2027-01-01T00:00:00Z",
        end_at="2027-01-01T00:00:00Z",
        jitter="5m",
    )
    assert recurrence.timezone == "Europe/Berlin"
    assert (recurrence.start_at, recurrence.end_at) == (START, START)
    assert recurrence.jitter == timedelta(minutes=5)
    assert recurrence.text == "06:30"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "cron"),
        ({"daily": "06:30", "cron": "* * * * *"}, "cron"),
        ({"daily": "24:00"}, "daily"),
        ({"daily": "06:30pm"}, "daily"),
        ({"daily": "٠٦:٣٠"}, "daily"),
        ({"weekly": "06:30"}, "weekly"),
        ({"weekly": "monday@06:30"}, "weekly"),
        ({"monthly": "0@06:30"}, "monthly"),
        ({"monthly": "32@06:30"}, "monthly"),
        ({"annually": "02-30@06:30"}, "annually"),
        ({"annually": "13-01@06:30"}, "annually"),
        ({"annually": "24@06:30"}, "annually"),
        ({"annually": "12-24,12-25@06:30"}, "annually"),
        ({"every": "0.5s"}, "every"),
        ({"every": "often"}, "every"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"daily": "06:30", "timezone": "Europe/Bielefeld"}, "timezone"),
        ({"daily": "06:30", "timezone": "../../etc/passwd"}, "timezone"),
        ({"daily": "06:30", "timezone": "/etc/localtime"}, "timezone"),
        ({"daily": "06:30", "timezone": "right/Europe/Berlin"}, "timezone"),
        ({"daily": "06:30", "timezone": "posix/Europe/Berlin"}, "timezone"),
        ({"daily": "06:30", "timezone": "posixrules"}, "timezone"),
        ({"daily": "06:30", "timezone": ""}, "timezone"),
        ({"daily": "06:30", "timezone": "a\0b"}, "timezone"),
        ({"daily": "06:30", "short_month": "skip"}, "short_month"),
        ({"monthly": "31@06:30", "short_month": "first"}, "short_month"),
        ({"daily": "06:30", "jitter": "25h"}, "jitter"),
        (
            {
                "daily": "06:30",
                "start_at": "2027-01-02T00:00:00Z",
                "end_at": "2027-01-01T00:00:00Z",
            },
            "end_at",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(fields, field):
    with pytest.raises(Invalid) as refused:
        read(**fields)
    assert refused.value.field == field
