"""When a schedule fires: once, at an interval, or by the calendar of a time zone.

Daily, weekly, monthly, annual and cron rules all reduce to days that match, and times of day on the
zone's wall clock. So they are one value, `Calendar`, and differ only in their notation
(`model/requests/recurrence_request.py`, `cron.py`). An interval counts elapsed time and ignores the
wall clock.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

ALL_MONTHS = tuple(range(1, 13))
LAST = -1
"""In place of an ordinal: the last such weekday of a month."""


class RecurrenceKind(StrEnum):
    """How a recurrence was written; the `scheduling_type` of its occurrences."""

    ONCE = "once"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    ANNUALLY = "annually"
    EVERY = "every"
    CRON = "cron"


class ShortMonth(StrEnum):
    """What happens to a day that a month does not have."""

    LAST = "last"
    """The last day of the month takes its place."""
    SKIP = "skip"


class OneTime(msgspec.Struct, frozen=True):
    """One instant."""

    at: datetime


class FixedInterval(msgspec.Struct, frozen=True):
    """The instants `anchor`, `anchor` + `interval` and so on, in elapsed time."""

    interval: timedelta
    anchor: datetime


class TimesOfDay(msgspec.Struct, frozen=True):
    """Times of day: every combination of these numbers, each in ascending order."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...] = (0,)


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """Days that match, and the times of day at which each of them fires.

    A day is given by its number in the month, by its weekday (Monday is 0), or by both. None
    matches every day.
    """

    times: TimesOfDay
    months: tuple[int, ...] = ALL_MONTHS
    days: tuple[int, ...] | None = None
    last_day: bool = False
    """Whether the last day of a month is one of its `days`."""
    weekdays: tuple[int, ...] | None = None
    nth_weekdays: tuple[tuple[int, int], ...] = ()
    """Weekdays that match once in a month: (0, 2) the second Monday, (4, LAST) the last Friday."""
    matches_either: bool = False
    """Whether a day may match either number or weekday, if both are given."""
    short_month: ShortMonth = ShortMonth.SKIP


Rule = OneTime | FixedInterval | Calendar


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, the time zone of its wall clock, and the period in which it applies."""

    kind: RecurrenceKind
    text: str
    """The rule as it was written."""
    rule: Rule
    timezone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    """The end of the period, inclusive."""
    jitter: timedelta = timedelta(0)
    """How much the start of an occurrence may be delayed; its fire time does not change."""
