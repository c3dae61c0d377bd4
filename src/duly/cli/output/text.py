"""Makes text safe for terminals, and formats times and durations for people.

Names, labels and reasons come from tenants. Control characters could drive the terminal, so they
are replaced, and so are characters that change the direction of writing.
"""

import re
from datetime import UTC, datetime, timedelta

from duly.duration import format_duration

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
UTC_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` on one line, with control characters replaced."""
    return UNSAFE.sub(lambda match: " " if match[0] in "\n\t" else "\ufffd", text)


def clean_lines(text: str) -> str:
    """Clean `text` line by line, keeping the line breaks."""
    return "\n".join(clean(line) for line in text.split("\n"))


def clean_json(text: str) -> str:
    """Return equivalent JSON with control characters written as escapes."""
    return UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def parse_time(time: str | None) -> datetime | None:
    """Parse a time from a response."""
    return None if time is None else datetime.fromisoformat(time)


def format_age(time: str | None, now: datetime) -> str:
    """Format a time relative to now: "3 min ago", "in 2 h"."""
    at = parse_time(time)
    if at is None:
        return ""
    past = now - at
    if abs(past) < timedelta(seconds=1):
        return "now"
    return (
        f"{format_coarse_duration(past)} ago"
        if past > timedelta(0)
        else f"in {format_coarse_duration(-past)}"
    )


def format_time(time: str | None, now: datetime) -> str:
    """Format a time in the local timezone, with the zone and the time's age."""
    at = parse_time(time)
    if at is None:
        return ""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z} ({format_age(time, now)})"


def format_moment(time: str | datetime, now: datetime) -> str:
    """Format a time in a sentence: "20:09:21 (in 60 min)", with the date unless it is today."""
    at = (datetime.fromisoformat(time) if isinstance(time, str) else time).astimezone()
    is_today = at.date() == now.astimezone().date()
    shown = f"{at:%H:%M:%S}" if is_today else f"{at:%Y-%m-%d %H:%M:%S}"
    return f"{shown} ({format_age(at.isoformat(), now)})"


def localise_times(message: str, now: datetime) -> str:
    """Return a server's message with its UTC times in the local timezone."""
    return UTC_TIME.sub(lambda match: format_moment(match[0], now), message)


def format_span(start: str | None, end: str | None) -> str:
    """Format the duration from `start` to `end`."""
    first, last = parse_time(start), parse_time(end)
    if first is None or last is None:
        return ""
    return format_duration(max(last - first, timedelta(0)))


def format_percent(fraction: float | None) -> str:
    """Format a fraction from 0 to 1 as a percentage, with a decimal place below 10 %."""
    if fraction is None:
        return ""
    percent = 100 * fraction
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def format_coarse_duration(duration: timedelta) -> str:
    """Format a duration in its largest unit: 45 s, 3 min, 2 h, 5 d."""
    seconds = duration.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def now() -> datetime:
    """Return the current time, which ages are relative to."""
    return datetime.now(UTC)
