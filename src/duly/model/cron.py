"""Reads cron expressions: five fields, or six with the seconds first.

Every field is expanded into the numbers it stands for. Of a mistake the position is told,
counted from 0 in the expression as it was given, so that a page can point at it.
"""

import re
from collections.abc import Iterator

import msgspec

from duly.errors import Invalid
from duly.model.recurrence import LAST, Calendar, Clock

MAX_EXPRESSION = 500
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
    """What may stand in one place of an expression."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Words for the numbers from `low` on."""
    more: str = ""
    """What else may stand there."""


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY = Field("day of the month", 1, 31, more=", or L alone for the last, or *")
MONTH = Field("month", 1, 12, MONTHS)
WEEKDAY = Field("day of the week", 0, 7, WEEKDAYS, more=", or like fri#2 or friL, or *")
FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class Text(msgspec.Struct, frozen=True):
    """A part of an expression, and where it begins."""

    at: int
    text: str

    def split(self, separator: str) -> "Iterator[Text]":
        """Cut it where `separator` is."""
        at = self.at
        for part in self.text.split(separator):
            yield Text(at, part)
            at += len(part) + len(separator)


def parse_cron(expression: str) -> Calendar:
    """Read an expression; raises Invalid, with the position of the mistake."""
    if len(expression) > MAX_EXPRESSION:
        raise Invalid("cron", f"cron may have at most {MAX_EXPRESSION} characters.", position=0)
    plain = expression.strip().lower()
    if plain.startswith("@") and plain not in MACROS:
        begin = Text(expression.index("@"), plain)
        raise _mistake(begin, f"there is no {plain[:40]!r}; there are {', '.join(MACROS)}")
    parts = [Text(m.start(), m.group().lower()) for m in re.finditer(r"\S+", expression)]
    if plain in MACROS:
        parts = [Text(0, part) for part in MACROS[plain].split()]
    if len(parts) not in (5, 6):
        end = parts[6] if len(parts) > 6 else Text(len(expression), "")
        count = f"{len(parts)} field{'' if len(parts) == 1 else 's'}"
        raise _mistake(end, f"it has {count}; write 5, or 6 with the seconds first")
    if len(parts) == 5:
        return _calendar(Text(0, "0"), *parts)
    try:
        return _calendar(*parts)
    except Invalid as error:
        hint = "Of 6 fields, the first is the seconds."
        position = error.details["position"]
        raise Invalid("cron", f"{error.message} {hint}", position=position) from None


def position_of_day(expression: str) -> int:
    """Return where the day of the month stands in an expression that could be read."""
    places = [found.start() for found in re.finditer(r"\S+", expression)]
    return places[-3] if len(places) > 3 else 0


def _calendar(
    second: Text, minute: Text, hour: Text, day: Text, month: Text, weekday: Text
) -> Calendar:
    # From left to right, so that of several mistakes the first is told.
    seconds, minutes = _numbers(second, SECOND), _numbers(minute, MINUTE)
    clock = Clock(_numbers(hour, HOUR), minutes, seconds)
    last_day = [part for part in day.split(",") if part.text == "l"]
    days = _some(day, DAY, [part for part in day.split(",") if part.text != "l"])
    months = _numbers(month, MONTH)
    special = [part for part in weekday.split(",") if _is_nth(part)]
    weekdays = _some(weekday, WEEKDAY, [p for p in weekday.split(",") if not _is_nth(p)])
    names_both = not (day.text.startswith("*") or weekday.text.startswith("*"))
    return Calendar(
        clock=clock,
        months=months,
        days=days,
        last_day=bool(last_day),
        # Cron counts from Sunday, which may also be called 7; the calendar from Monday.
        weekdays=None if weekdays is None else tuple(sorted({(n - 1) % 7 for n in weekdays})),
        nth=tuple(_nth(part) for part in special),
        is_either=names_both,
    )


def _some(whole: Text, field: Field, parts: list[Text]) -> tuple[int, ...] | None:
    """Return the numbers of a day field; None when it means every day."""
    if whole.text == "*":
        return None
    return tuple(sorted({number for part in parts for number in _expand(part, field)}))


def _numbers(whole: Text, field: Field) -> tuple[int, ...]:
    return tuple(sorted({n for part in whole.split(",") for n in _expand(part, field)}))


def _expand(part: Text, field: Field) -> range:
    """Return the numbers of one of the parts between commas."""
    reach, *steps = part.split("/")
    if len(steps) > 1:
        raise _mistake(steps[1], "there is more than one step")
    step = 1
    if steps:
        if not _is_number(steps[0].text) or not 1 <= int(steps[0].text) <= field.high:
            raise _mistake(steps[0], f"a step is a number from 1 to {field.high}")
        step = int(steps[0].text)
    if reach.text == "*":
        # Seven is Sunday again, which must not be a step of its own.
        return range(field.low, (6 if field is WEEKDAY else field.high) + 1, step)
    ends = list(reach.split("-"))
    if len(ends) > 2:
        raise _mistake(ends[2], "a range has two ends")
    low, high = _number(ends[0], field), _number(ends[-1], field)
    if field is WEEKDAY and low > high == 0:
        # At the end of a range Sunday comes last: fri-sun. From Sunday to Sunday is one day.
        high = 7
    if low > high:
        raise _mistake(reach, f"the range {reach.text!r} runs backwards; write it as two")
    if steps and len(ends) == 1:
        high = field.high
    return range(low, high + 1, step)


def _number(part: Text, field: Field) -> int:
    if part.text in field.names:
        return field.low + field.names.index(part.text)
    if _is_number(part.text) and field.low <= int(part.text) <= field.high:
        return int(part.text)
    words = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    what = f"not {part.text[:40]!r}" if part.text else "and nothing is there"
    known = f"{field.low} to {field.high}{words}{field.more}"
    raise _mistake(part, f"the {field.name} is {known}, {what}")


def _is_nth(part: Text) -> bool:
    return "#" in part.text or (part.text.endswith("l") and part.text != "l")


def _nth(part: Text) -> tuple[int, int]:
    """Read `fri#2`, the second Friday of a month, or `friL`, its last one."""
    if "#" not in part.text:
        return (_number(Text(part.at, part.text[:-1]), WEEKDAY) - 1) % 7, LAST
    name, *counts = part.split("#")
    number = (_number(name, WEEKDAY) - 1) % 7
    if len(counts) != 1 or counts[0].text not in ("1", "2", "3", "4", "5"):
        raise _mistake(counts[0], "after # comes which of them in the month, 1 to 5")
    return number, int(counts[0].text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _mistake(part: Text, why: str) -> Invalid:
    return Invalid("cron", f"cron, at position {part.at}: {why}.", position=part.at)
