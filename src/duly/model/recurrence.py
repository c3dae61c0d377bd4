"""When a schedule fires: once, at an interval, or by the calendar of a time zone.

Days, weeks, months, years and cron all come to the same: days that match, and times of
day, as a clock on the wall of the zone shows them. So they are one value, `Calendar`, and
differ only in how people write them (`model/recurrence_request.py`, `model/cron.py`).
An interval counts real time and knows no wall.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

ALL_MONTHS = tuple(range(1, 13))
LAST = -1
"""In place of a number: the last weekday of its kind in a month."""


class Kind(StrEnum):
    """How a recurrence was written; the `scheduling_type` of what it produces."""

    ONCE = "once"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    ANNUALLY = "annually"
    EVERY = "every"
    CRON = "cron"


class ShortMonth(StrEnum):
    """What becomes of a day that a month does not have."""

    LAST = "last"
    """The last day of the month stands for it."""
    SKIP = "skip"


class Once(msgspec.Struct, frozen=True):
    """One instant."""

    at: datetime


class Every(msgspec.Struct, frozen=True):
    """The instants `anchor`, `anchor` + `interval` and so on, in real time."""

    interval: timedelta
    anchor: datetime


class Clock(msgspec.Struct, frozen=True):
    """Times of day: every combination of these, each in ascending order."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...] = (0,)


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """Days that match, and the times at which each of them fires.

    A day is named by its number in the month, or by its weekday (Monday is 0), or by both.
    What names nothing (None) matches every day.
    """

    clock: Clock
    months: tuple[int, ...] = ALL_MONTHS
    days: tuple[int, ...] | None = None
    last_day: bool = False
    """Whether the last day of a month is among its `days`."""
    weekdays: tuple[int, ...] | None = None
    nth: tuple[tuple[int, int], ...] = ()
    """Weekdays that match once in a month: (0, 2) the second Monday, (4, LAST) the last Friday."""
    is_either: bool = False
    """Whether one of number and weekday is enough, where both are named."""
    short_month: ShortMonth = ShortMonth.SKIP


Rule = Once | Every | Calendar


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, the zone whose wall clock it means, and the time within which it holds."""

    kind: Kind
    text: str
    """The rule as it was written."""
    rule: Rule
    timezone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    """It never fires after this; it may fire at it."""
    jitter: timedelta = timedelta(0)
    """By how much the start of an occurrence may be put off; its fire time stays."""
