"""Parses and formats durations and times: 90, "5m", "1h30m", "PT5M", "2026-11-15T12:00Z"."""

import re
from datetime import UTC, datetime, timedelta

from duly.errors import Invalid

MAX_DURATION = timedelta(days=36_525)
"""A hundred years: longer than any plan, and within the range of every interval type."""

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
UNIT_NAMES = {"d": "d", "h": "h", "m": "min", "s": "s"}
"""As they are printed."""
UNIT_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
UNITS_PATTERN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+", re.ASCII)
TIME_EXAMPLE = "Write it like 2027-01-31T06:30:00Z."
NUMBER_PATTERN = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
ISO_PATTERN = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)


def parse_duration(value: float | str, field: str) -> timedelta:
    """Parse `value`, in seconds if it is a number, as a duration from 0 to 100 years."""
    seconds = float(value) if isinstance(value, int | float) else _seconds(value, field)
    if not 0 <= seconds <= MAX_DURATION.total_seconds():
        shown = repr(value) if isinstance(value, str) else f"{value:.12g}"
        raise Invalid(field, f"{shown} is not a duration from 0 to 100 years.")
    return timedelta(seconds=seconds)


def _seconds(text: str, field: str) -> float:
    bare = text.strip()
    if len(bare) <= 60:
        if NUMBER_PATTERN.fullmatch(bare):
            return float(bare)
        if UNITS_PATTERN.fullmatch(bare):
            return sum(float(number) * UNITS[unit] for number, unit in UNIT_PATTERN.findall(bare))
        iso = ISO_PATTERN.fullmatch(bare.upper())
        if iso and any(iso.groupdict().values()):
            parts = {unit: float(number) for unit, number in iso.groupdict().items() if number}
            return sum(number * UNITS[unit] for unit, number in parts.items())
    raise Invalid(field, f"{bare[:60]!r} is not a duration. Try 90, 5m or 1h30m.")


def format_duration(duration: timedelta) -> str:
    """Format `duration` in its two largest nonzero units: 1 h 30 min, 45 s, 0.2 s."""
    seconds = duration.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts = []
    rest = round(seconds)
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(UNITS[unit]))
        if count:
            parts.append(f"{count} {UNIT_NAMES[unit]}")
    return " ".join(parts[:2])


def parse_time(value: str, field: str) -> datetime:
    """Parse an RFC 3339 time; one without an offset is refused, because it is ambiguous."""
    try:
        at = datetime.fromisoformat(value.strip())
    except ValueError:
        at = None
    if at is None:
        raise Invalid(field, f"{value[:60]!r} is not a time. {TIME_EXAMPLE}")
    if at.tzinfo is None:
        raise Invalid(field, f"{value[:60]!r} has no UTC offset. {TIME_EXAMPLE}")
    if not 2000 <= at.year <= 2200:
        raise Invalid(field, f"{value!r} is not between the years 2000 and 2200.")
    return at.astimezone(UTC)
