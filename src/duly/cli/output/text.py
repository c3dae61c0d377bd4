"""Text for people: made harmless for a terminal, times as they are said.

Names, labels and reasons come from tenants. A terminal obeys control characters,
so none of them is let through, nor any that turns the direction of writing.
"""

import re
from datetime import UTC, datetime, timedelta

from duly.duration import format_duration

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NOT_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` on one line, with a sign in place of each character a terminal would obey."""
    return UNSAFE.sub(lambda match: " " if match[0] in "\n\t" else "\ufffd", text)


def clean_lines(text: str) -> str:
    """Return `text` made harmless line by line."""
    return "\n".join(clean(line) for line in text.split("\n"))


def clean_json(text: str) -> str:
    """Return JSON that means the same, with what a terminal would obey written as escapes."""
    return NOT_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def parse(time: str | None) -> datetime | None:
    """Read a time of an answer."""
    return None if time is None else datetime.fromisoformat(time)


def say_age(time: str | None, now: datetime) -> str:
    """Say how long ago, or how soon, a time is: "3m ago", "in 2h"."""
    at = parse(time)
    if at is None:
        return ""
    past = now - at
    if abs(past) < timedelta(seconds=1):
        return "now"
    return f"{coarse(past)} ago" if past > timedelta(0) else f"in {coarse(-past)}"


def say_time(time: str | None, now: datetime) -> str:
    """Say a time on the clock of whoever reads, and how far away it is."""
    at = parse(time)
    if at is None:
        return ""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({say_age(time, now)})"


def say_span(start: str | None, end: str | None) -> str:
    """Say how long it was from `start` to `end`."""
    first, last = parse(start), parse(end)
    if first is None or last is None:
        return ""
    return format_duration(max(last - first, timedelta(0)))


def coarse(duration: timedelta) -> str:
    """Say a duration in its largest unit: 45s, 3m, 2h, 5d."""
    seconds = duration.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (unit != "m" and seconds >= size):
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def now() -> datetime:
    """Return the time of day that ages are counted from."""
    return datetime.now(UTC)
