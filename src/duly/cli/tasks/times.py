"""Parses the times of flags; one without an offset is in the local timezone."""

from datetime import UTC, datetime, timedelta

from typer import BadParameter

from duly.duration import parse_duration
from duly.errors import Invalid

SECOND = timedelta(seconds=1)


def parse_since(flag: str, text: str) -> str | datetime:
    """Parse a duration back from the server's now, or a time, local if it has no offset."""
    return text if is_duration(text) else parse_instant(flag, text, "1h (ago), ")


def is_duration(text: str) -> bool:
    """Return True if the text is a duration rather than a time."""
    try:
        parse_duration(text, "time")
    except Invalid:
        return False
    return True


def parse_instant(flag: str, text: str, other_forms: str = "") -> datetime:
    """Parse a time; without an offset it is in the local timezone."""
    try:
        at = datetime.fromisoformat(text.strip())
        return _local_instant(at) if at.tzinfo is None else at
    except (ValueError, OverflowError, OSError):
        raise BadParameter(
            f"{text[:60]!r} is not a time. Write it like {other_forms}2027-01-31T06:30 (local "
            "time) or 2027-01-31T06:30Z.",
            param_hint=flag,
        ) from None


def _local_instant(wall: datetime) -> datetime:
    """Return when the clock of this machine shows `wall`.

    A time that daylight saving skips is the first instant after the jump, as in schedules. The
    local timezone may have no name, so it is known only through `astimezone`.
    """
    readings = [wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
    if any(at.astimezone().replace(tzinfo=None) == wall for at in readings):
        return wall.astimezone()
    # By the offset after the jump the time is before it, and by the offset before it, after it.
    before, after = min(readings), max(readings)
    offset = after.astimezone().utcoffset()
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + middle * SECOND).astimezone().utcoffset() == offset:
            high = middle
        else:
            low = middle
    return (before + high * SECOND).replace(microsecond=0).astimezone()
