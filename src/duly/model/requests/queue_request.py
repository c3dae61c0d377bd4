"""The requests for a queue, and their conversion into its definition."""

import re
from collections.abc import Mapping
from datetime import time
from typing import Any

import msgspec

from duly.errors import Invalid
from duly.model.queues.queue import MAX_LEVEL, URGENT_LEVEL, OpeningHours, QueueDefinition
from duly.model.requests.plan_names import check_name
from duly.model.requests.recurrence_request import check_zone

MAX_QUEUES = 50
"""Built-in ones included: every queue is a label of the metrics."""
HOURS_PATTERN = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|24:00)")


class QueueRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/queues."""

    name: str
    level: int
    off_peak: bool = False
    max_share: float | str | None = None
    """From 0 to 1, or in percent, such as "30%"."""
    hours: str | None = None
    """Such as "22:00-06:00"."""
    timezone: str | None = None


class QueueChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/queues/{id}; absent fields stay unchanged, null removes a bound."""

    level: int | None = None
    max_share: float | str | None = None
    hours: str | None = None
    timezone: str | None = None


def queue_from(request: QueueRequest) -> QueueDefinition:
    """Return the queue that a request describes; raises Invalid for the first bad field."""
    return QueueDefinition(
        name=check_name(request.name),
        level=_level(request.level),
        off_peak=request.off_peak,
        max_share=_share(request.max_share),
        hours=_hours(request.hours, request.timezone),
    )


def change_queue(old: QueueDefinition, changes: Mapping[str, Any]) -> QueueDefinition:
    """Return `old` with the fields of a request changed."""
    new = old
    if "level" in changes:
        if old.is_built_in:
            raise Invalid("level", f"{old.name!r} is a built-in queue, and keeps its level.")
        if changes["level"] is None:
            raise Invalid("level", f"it is missing. Give a number from 1 to {MAX_LEVEL}.")
        new = msgspec.structs.replace(new, level=_level(changes["level"]))
    if "max_share" in changes:
        new = msgspec.structs.replace(new, max_share=_share(changes["max_share"]))
    if "hours" in changes or "timezone" in changes:
        before = (None, None) if old.hours is None else (str(old.hours), old.hours.timezone)
        asked = changes.get("hours", before[0])
        zone = changes.get("timezone", before[1] if asked is not None else None)
        new = msgspec.structs.replace(new, hours=_hours(asked, zone))
    return new


def _level(level: int) -> int:
    if not URGENT_LEVEL < level <= MAX_LEVEL:
        raise Invalid(
            "level",
            f"{level} is not a number from {URGENT_LEVEL + 1} to {MAX_LEVEL}. Queues with a lower "
            "level are served first.",
        )
    return level


def _share(asked: float | str | None) -> float | None:
    if asked is None:
        return None
    share = asked if not isinstance(asked, str) else _percentage(asked)
    if share is None or not 0 < share <= 1:
        raise Invalid(
            "max_share",
            f"{asked!r} is not a share of the fleet. Write it as 0.3 or 30%; at most 100%.",
        )
    return round(float(share), 6)


def _percentage(text: str) -> float | None:
    try:
        if text.endswith("%"):
            return float(text.removesuffix("%")) / 100
        return float(text)
    except ValueError:
        return None


def _hours(asked: str | None, zone: str | None) -> OpeningHours | None:
    if asked is None:
        if zone is not None:
            raise Invalid("timezone", "it has no meaning without hours. Give hours as well.")
        return None
    match = HOURS_PATTERN.fullmatch(asked)
    if match is None:
        raise Invalid("hours", f"{asked[:40]!r} is not a daily window. Write it like 22:00-06:00.")
    opens = time(int(match[1]), int(match[2]))
    closes = time(int(match[3] or 0), int(match[4] or 0))
    if opens == closes:
        raise Invalid("hours", "it ends when it begins. For the whole day, leave it out.")
    return OpeningHours(opens, closes, check_zone(zone))
