"""Converts between instants and the wall times of a time zone.

At daylight-saving changes a wall time that is skipped maps to the first instant after the jump,
and a wall time that occurs twice to its first occurrence.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)


def instant_of(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when the clock of `zone` shows `wall` (without a zone, in whole seconds).

    The later the wall time, the later the instant, or the same: all times that are jumped
    over mean one instant.
    """
    at = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if wall_of(at, zone) == wall:
        return at
    # By the offset that holds after the jump `wall` would come before it, and by the one
    # that holds before the jump, after it: so the jump is between the two.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    low, high = 0, int((at - before).total_seconds())
    offset = _offset(at, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(before + middle * SECOND, zone) == offset:
            high = middle
        else:
            low = middle
    return before + high * SECOND


def wall_of(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return what the clock of `zone` shows at `instant`."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta | None:
    return instant.astimezone(zone).utcoffset()
