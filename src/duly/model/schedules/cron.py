"""Parses cron expressions: five fields, or six with the seconds first.

Every field is expanded into the numbers that it stands for. An error has the position of the
mistake, counted from 0 in the expression as it was given, so that a page can point at it.
"""

import re
from collections.abc import Iterator

import msgspec

from duly.errors import Invalid
from duly.model.schedules.recurrence import LAST, Calendar, TimesOfDay
from duly.model.wording import count_of, either

MAX_EXPRESSION_CHARS = 500
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Field(msgspec.Struct, frozen=True):
    """One field of an expression, and the values that it allows."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of the numbers from `low` on."""
    more: str = ""
    """Other values that it allows, for error messages."""


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY = Field("day of the month", 1, 31, more=", or L alone for the last, or *")
MONTH = Field("month", 1, 12, MONTHS)
WEEKDAY = Field("day of the week", 0, 7, WEEKDAYS, more=", or like fri#2 or friL, or *")
FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class Token(msgspec.Struct, frozen=True):
    """A part of an expression, and its position."""

    at: int
    text: str

    def split(self, separator: str) -> "Iterator[Token]":
        """Split the token at every `separator`."""
        at = self.at
        for part in self.text.split(separator):
            yield Token(at, part)
            at += len(part) + len(separator)


def parse_cron(expression: str) -> Calendar:
    """Parse an expression; raises Invalid with the position of the first mistake."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise Invalid(
            "cron",
            f"it has {len(expression)} characters; at most {MAX_EXPRESSION_CHARS} are allowed.",
            position=0,
        )
    plain = expression.strip().lower()
    if plain.startswith("@") and plain not in MACROS:
        begin = Token(expression.index("@"), plain)
        raise _error_at(begin, f"{plain[:40]!r} is unknown. Use {either(MACROS)}")
    parts = [Token(m.start(), m.group().lower()) for m in re.finditer(r"\S+", expression)]
    if plain in MACROS:
        parts = [Token(0, part) for part in MACROS[plain].split()]
    if len(parts) not in (5, 6):
        end = parts[6] if len(parts) > 6 else Token(len(expression), "")
        count = count_of(len(parts), "field")
        problem = f"it has {count}. Write 5, or 6 with the seconds first."
        raise Invalid("cron", problem, position=end.at)
    if len(parts) == 5:
        return _calendar(Token(0, "0"), *parts)
    try:
        return _calendar(*parts)
    except Invalid as error:
        hint = "Of 6 fields, the first is the seconds."
        position = error.details["position"]
        raise Invalid("cron", f"{error.problem} {hint}", position=position) from None


def position_of_day(expression: str) -> int:
    """Return the position of the day of the month in a valid expression."""
    places = [found.start() for found in re.finditer(r"\S+", expression)]
    return places[-3] if len(places) > 3 else 0


def _calendar(
    second: Token, minute: Token, hour: Token, day: Token, month: Token, weekday: Token
) -> Calendar:
    # From left to right, so that the first of several mistakes is reported.
    seconds, minutes = _numbers(second, SECOND), _numbers(minute, MINUTE)
    times = TimesOfDay(_numbers(hour, HOUR), minutes, seconds)
    last_day = [part for part in day.split(",") if part.text == "l"]
    days = _day_numbers(day, DAY, [part for part in day.split(",") if part.text != "l"])
    months = _numbers(month, MONTH)
    special = [part for part in weekday.split(",") if _is_nth(part)]
    weekdays = _day_numbers(weekday, WEEKDAY, [p for p in weekday.split(",") if not _is_nth(p)])
    names_both = not (day.text.startswith("*") or weekday.text.startswith("*"))
    return Calendar(
        times=times,
        months=months,
        days=days,
        last_day=bool(last_day),
        # Cron counts weekdays from Sunday, which is both 0 and 7; the calendar from Monday.
        weekdays=None if weekdays is None else tuple(sorted({(n - 1) % 7 for n in weekdays})),
        nth_weekdays=tuple(_nth(part) for part in special),
        matches_either=names_both,
    )


def _day_numbers(whole: Token, field: Field, parts: list[Token]) -> tuple[int, ...] | None:
    """Return the numbers of a day field; None if it matches every day."""
    if whole.text == "*":
        return None
    return tuple(sorted({number for part in parts for number in _expand(part, field)}))


def _numbers(whole: Token, field: Field) -> tuple[int, ...]:
    return tuple(sorted({n for part in whole.split(",") for n in _expand(part, field)}))


def _expand(part: Token, field: Field) -> range:
    """Return the numbers of one element of a comma-separated list."""
    reach, *steps = part.split("/")
    if len(steps) > 1:
        raise _error_at(steps[1], "an element has at most one step")
    step = 1
    if steps:
        if not _is_number(steps[0].text) or not 1 <= int(steps[0].text) <= field.high:
            raise _error_at(
                steps[0],
                f"{steps[0].text[:40]!r} is not a step. Use a number from 1 to {field.high}",
            )
        step = int(steps[0].text)
    if reach.text == "*":
        # 7 is Sunday again, which must not count as a step of its own.
        return range(field.low, (6 if field is WEEKDAY else field.high) + 1, step)
    ends = list(reach.split("-"))
    if len(ends) > 2:
        raise _error_at(ends[2], "a range has only two ends")
    low, high = _number(ends[0], field), _number(ends[-1], field)
    if field is WEEKDAY and low > high == 0:
        # As the end of a range, Sunday comes last: fri-sun. The range sun-sun is one day.
        high = 7
    if low > high:
        raise _error_at(reach, f"the range {reach.text!r} runs backwards. Write it as two")
    if steps and len(ends) == 1:
        high = field.high
    return range(low, high + 1, step)


def _number(part: Token, field: Field) -> int:
    if part.text in field.names:
        return field.low + field.names.index(part.text)
    if _is_number(part.text) and field.low <= int(part.text) <= field.high:
        return int(part.text)
    words = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    problem = f"{part.text[:40]!r} is not a {field.name}" if part.text else "a number is missing"
    known = f"{field.low} to {field.high}{words}{field.more}"
    raise _error_at(part, f"{problem}. Use {known}")


def _is_nth(part: Token) -> bool:
    return "#" in part.text or (part.text.endswith("l") and part.text != "l")


def _nth(part: Token) -> tuple[int, int]:
    """Parse `fri#2`, the second Friday of a month, or `friL`, its last one."""
    if "#" not in part.text:
        return (_number(Token(part.at, part.text[:-1]), WEEKDAY) - 1) % 7, LAST
    name, *counts = part.split("#")
    number = (_number(name, WEEKDAY) - 1) % 7
    if len(counts) != 1 or counts[0].text not in ("1", "2", "3", "4", "5"):
        raise _error_at(
            counts[0], "after # comes a number from 1 to 5: which such day of the month"
        )
    return number, int(counts[0].text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _error_at(part: Token, why: str) -> Invalid:
    return Invalid("cron", f"at position {part.at}, {why}.", position=part.at)
