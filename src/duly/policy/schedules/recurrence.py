"""Computes the fire times of a recurrence, in order.

Pure functions of the recurrence and an instant. Calendar rules enumerate wall times in order and
convert each to an instant; wall times that map to one instant, because the clock was set, are
one fire time. The enumeration goes month by month, so a rule that fires on leap days is fast and
one that never fires ends soon.

Decision: docs/adr/0019-fire-times.md.
"""

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, product
from zoneinfo import ZoneInfo

from duly.model.schedules.recurrence import (
    LAST,
    Calendar,
    FixedInterval,
    OneTime,
    Recurrence,
    ShortMonth,
    TimesOfDay,
)
from duly.policy.schedules.wall_clock import instant_of, wall_of

HORIZON_YEARS = 50
"""Years that are searched. Every day that recurs does so within 40 years: the longest gap is that
of 29 February on a given weekday across a century year that is not a leap year."""
LAST_YEAR = 2200
RESOLUTION = timedelta(microseconds=1)


def next_after(recurrence: Recurrence, instant: datetime) -> datetime | None:
    """Return the first fire time after `instant`; None if there is none."""
    if recurrence.start_at is not None:
        instant = max(instant, recurrence.start_at - RESOLUTION)
    match recurrence.rule:
        case OneTime(at):
            found = at if at > instant else None
        case FixedInterval() as every:
            found = _next_multiple(every, instant)
        case Calendar() as calendar:
            found = _next_match(calendar, ZoneInfo(recurrence.timezone), instant)
    if found is None or found.year > LAST_YEAR:
        return None
    if recurrence.end_at is not None and found > recurrence.end_at:
        return None
    return found


def fire_times(recurrence: Recurrence, after: datetime) -> Iterator[datetime]:
    """Yield the fire times after an instant, in order."""
    at = next_after(recurrence, after)
    while at is not None:
        yield at
        at = next_after(recurrence, at)


def between(
    recurrence: Recurrence, after: datetime, until: datetime, *, limit: int
) -> list[datetime]:
    """Return the fire times later than `after` and not later than `until`, the first `limit`."""
    times = []
    for at in islice(fire_times(recurrence, after), limit):
        if at > until:
            break
        times.append(at)
    return times


def is_possible(recurrence: Recurrence) -> bool:
    """Return True if the calendar matches any day at all; 31 February does not."""
    match recurrence.rule:
        case Calendar() as calendar:
            return next(_dates(calendar, date(2000, 1, 1)), None) is not None
        case _:
            return True


def _next_multiple(every: FixedInterval, instant: datetime) -> datetime:
    passed = (instant - every.anchor) // every.interval
    return every.anchor + max(0, passed + 1) * every.interval


@lru_cache(4096)  # Schedules that fire together mostly have the same rule.
def _next_match(calendar: Calendar, zone: ZoneInfo, instant: datetime) -> datetime | None:
    shown = wall_of(instant, zone).replace(microsecond=0)
    for day in _dates(calendar, shown.date()):
        after = shown.time() if day == shown.date() else None
        for at in _times_of_day(calendar.times, after):
            found = instant_of(datetime.combine(day, at), zone)
            # After the clock was set back, it shows wall times that it has shown before.
            if found > instant:
                return found
    return None


def _dates(calendar: Calendar, first: date) -> Iterator[date]:
    """Yield the matching days from `first` up to the horizon."""
    for year in range(first.year, min(first.year + HORIZON_YEARS, LAST_YEAR + 1)):
        for month in calendar.months:
            if (year, month) < (first.year, first.month):
                continue
            for day in _days(calendar, year, month):
                found = date(year, month, day)
                if found >= first:
                    yield found


def _days(calendar: Calendar, year: int, month: int) -> Sequence[int]:
    """Return the matching days of a month, in order."""
    begins_on, length = monthrange(year, month)
    every_day = range(1, length + 1)
    names_number = calendar.days is not None or calendar.last_day
    names_weekday = calendar.weekdays is not None or bool(calendar.nth_weekdays)
    if not (names_number or names_weekday):
        return every_day
    if not names_weekday:
        return sorted(_by_number(calendar, length))
    if not names_number:
        return sorted(_by_weekday(calendar, begins_on, length))
    by_number = _by_number(calendar, length)
    by_weekday = _by_weekday(calendar, begins_on, length)
    return sorted(by_number | by_weekday if calendar.matches_either else by_number & by_weekday)


def _by_number(calendar: Calendar, length: int) -> set[int]:
    days = calendar.days or ()
    if calendar.short_month is ShortMonth.LAST:
        found = {min(day, length) for day in days}
    else:
        found = {day for day in days if day <= length}
    return found | {length} if calendar.last_day else found


def _by_weekday(calendar: Calendar, begins_on: int, length: int) -> set[int]:
    found: set[int] = set()
    for weekday in calendar.weekdays or ():
        found.update(range(1 + (weekday - begins_on) % 7, length + 1, 7))
    for weekday, count in calendar.nth_weekdays:
        days = range(1 + (weekday - begins_on) % 7, length + 1, 7)
        if count == LAST:
            found.add(days[-1])
        elif count <= len(days):
            found.add(days[count - 1])
    return found


def _times_of_day(clock: TimesOfDay, after: time | None) -> Iterator[time]:
    """Yield the times of day later than `after` (in whole seconds), in order."""
    if after is None:
        yield from (time(*at) for at in product(clock.hours, clock.minutes, clock.seconds))
        return
    for hour in clock.hours[bisect_left(clock.hours, after.hour) :]:
        minutes = clock.minutes
        if hour == after.hour:
            minutes = minutes[bisect_left(minutes, after.minute) :]
        for minute in minutes:
            seconds = clock.seconds
            if (hour, minute) == (after.hour, after.minute):
                seconds = seconds[bisect_right(seconds, after.second) :]
            yield from (time(hour, minute, second) for second in seconds)
