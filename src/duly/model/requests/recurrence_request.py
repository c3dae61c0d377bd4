"""The recurrence fields of a request, and their conversion into a `Recurrence`.

Exactly one rule is given: `run_at`, `daily`, `weekly`, `monthly`, `annually`, `every` or `cron`.
It is stored as written, so that responses repeat it verbatim, and parsed whenever it is needed.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from duly.duration import format_duration, parse_duration, parse_time
from duly.errors import Invalid
from duly.model.schedules.cron import MONTHS, parse_cron
from duly.model.schedules.recurrence import (
    Calendar,
    FixedInterval,
    OneTime,
    Recurrence,
    RecurrenceKind,
    Rule,
    ShortMonth,
    TimesOfDay,
)
from duly.model.wording import either

RULE_FIELDS = {"run_at": RecurrenceKind.ONCE} | {
    kind.value: kind for kind in RecurrenceKind if kind is not RecurrenceKind.ONCE
}
MIN_INTERVAL = timedelta(seconds=1)
MAX_JITTER = timedelta(days=1)
WEEKDAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIME_PATTERN = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
ZONE_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
NOT_ZONES = ("posix/", "right/", "posixrules", "localtime")
"""Files beside the zones on many machines, but not on all, which are not IANA zones. The clock of
`right/` counts leap seconds, which ours does not."""
DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SHORT_MONTH_KINDS = frozenset({RecurrenceKind.MONTHLY, RecurrenceKind.ANNUALLY})


class RecurrenceRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of a schedule that define when it fires."""

    run_at: str | None = None
    daily: str | None = None
    weekly: str | None = None
    monthly: str | None = None
    annually: str | None = None
    every: float | str | None = None
    cron: str | None = None
    timezone: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    jitter: float | str | None = None
    short_month: str | None = None


def parse_recurrence(request: RecurrenceRequest, *, now: datetime) -> Recurrence:
    """Convert a request into a `Recurrence`; raises Invalid for the first bad field.

    An interval without `start_at` counts from `now`.
    """
    way, written = _rule_field(request)
    zone = check_zone(request.timezone)
    start_at = None if request.start_at is None else parse_time(request.start_at, "start_at")
    end_at = None if request.end_at is None else parse_time(request.end_at, "end_at")
    if start_at is not None and end_at is not None and end_at < start_at:
        raise Invalid("end_at", "it is before start_at.")
    kind = RULE_FIELDS[way]
    short_month = _short_month(request.short_month, kind)
    return Recurrence(
        kind=kind,
        text=written if isinstance(written, str) else f"{written:g}",
        rule=_rule(kind, written, short_month, anchor=start_at or now),
        timezone=zone,
        start_at=start_at,
        end_at=end_at,
        jitter=_jitter(request.jitter),
    )


def _rule_field(request: RecurrenceRequest) -> tuple[str, float | str]:
    given = [(name, value) for name in RULE_FIELDS if (value := getattr(request, name)) is not None]
    if len(given) != 1:
        names = [name for name, _ in given]
        problem = f"{either(names, 'and')} are given" if given else "no recurrence is given"
        raise Invalid(
            names[-1] if given else "cron",
            f"{problem}. Give exactly one of {either(RULE_FIELDS, 'and')}.",
        )
    return given[0]


def _rule(
    kind: RecurrenceKind, written: float | str, short_month: ShortMonth, *, anchor: datetime
) -> Rule:
    if kind is RecurrenceKind.EVERY:
        interval = parse_duration(written, "every")
        if interval < MIN_INTERVAL:
            raise Invalid("every", f"{format_duration(interval)} is too short. Use at least 1 s.")
        return FixedInterval(interval, anchor)
    text = str(written).strip().lower()
    match kind:
        case RecurrenceKind.ONCE:
            return OneTime(parse_time(str(written), "run_at"))
        case RecurrenceKind.DAILY:
            return Calendar(times=_time_of_day(text, "daily"))
        case RecurrenceKind.WEEKLY:
            names, times = _days_at(text, "weekly", "mon,thu@06:30")
            return Calendar(times=times, weekdays=_sorted(_weekday(name) for name in names))
        case RecurrenceKind.MONTHLY:
            names, times = _days_at(text, "monthly", "31@06:30")
            days = _sorted(_day(name, "monthly", 31) for name in names)
            return Calendar(times=times, days=days, short_month=short_month)
        case RecurrenceKind.ANNUALLY:
            return _annually(text, short_month)
        case RecurrenceKind.CRON:
            return parse_cron(str(written))


def _annually(text: str, short_month: ShortMonth) -> Calendar:
    names, times = _days_at(text, "annually", "12-24@06:30")
    month_name, dash, day_name = names[0].partition("-")
    month = MONTHS.index(month_name) + 1 if month_name in MONTHS else 0
    if month_name.isascii() and month_name.isdecimal() and len(month_name) <= 2:
        month = int(month_name)
    if len(names) != 1 or not dash or not 1 <= month <= 12:
        raise Invalid(
            "annually",
            f"{text[:40]!r} is not a month, a day and a time. Write it like 12-24@06:30.",
        )
    day = _day(day_name, "annually", DAYS_IN_MONTH[month - 1])
    return Calendar(times=times, months=(month,), days=(day,), short_month=short_month)


def _days_at(text: str, field: str, example: str) -> tuple[list[str], TimesOfDay]:
    days, at, time = text.partition("@")
    if not at:
        raise Invalid(
            field, f"{text[:40]!r} is not one or more days and a time. Write it like {example}."
        )
    return [day.strip() for day in days.split(",")], _time_of_day(time, field)


def _time_of_day(text: str, field: str) -> TimesOfDay:
    found = TIME_PATTERN.fullmatch(text.strip())
    hour, minute, second = (int(part or 0) for part in found.groups()) if found else (24, 0, 0)
    if hour > 23 or minute > 59 or second > 59:
        raise Invalid(field, f"{text[:40]!r} is not a time of day. Write it like 06:30.")
    return TimesOfDay((hour,), (minute,), (second,))


def _weekday(name: str) -> int:
    if name not in WEEKDAY_NAMES:
        raise Invalid("weekly", f"{name[:40]!r} is not a day. Use {either(WEEKDAY_NAMES)}.")
    return WEEKDAY_NAMES.index(name)


def _day(name: str, field: str, most: int) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) <= 2 and 1 <= int(name) <= most):
        raise Invalid(field, f"{name[:40]!r} is not a day from 1 to {most}.")
    return int(name)


def _sorted(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def _short_month(asked: str | None, kind: RecurrenceKind) -> ShortMonth:
    if asked is None:
        return ShortMonth.LAST
    if kind not in SHORT_MONTH_KINDS:
        raise Invalid("short_month", "it applies to monthly and annually only. Leave it out.")
    try:
        return ShortMonth(asked)
    except ValueError:
        raise Invalid(
            "short_month", f"{asked[:40]!r} is unknown. Use {either(ShortMonth)}."
        ) from None


def _jitter(asked: float | str | None) -> timedelta:
    jitter = timedelta(0) if asked is None else parse_duration(asked, "jitter")
    if jitter > MAX_JITTER:
        raise Invalid("jitter", f"{format_duration(jitter)} is too long. Use at most 24 h.")
    return jitter


def check_zone(name: str | None) -> str:
    """Return the name of a time zone, by default UTC; raises Invalid if there is none."""
    if name is None:
        return "UTC"
    if not _is_zone(name):
        raise Invalid(
            "timezone", f"there is no time zone {name[:60]!r}. Write it like Europe/Berlin."
        )
    return name


@lru_cache(maxsize=1000)
def _is_zone(name: str) -> bool:
    if not ZONE_PATTERN.fullmatch(name) or name.startswith(NOT_ZONES):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return True
