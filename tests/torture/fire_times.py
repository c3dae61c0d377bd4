"""Computes the fire times of a schedule independently of Duly, by counting seconds.

It supports only the recurrences that the clients of a run use, and none of Duly's code, so that it
cannot repeat Duly's mistakes.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

SECOND = timedelta(seconds=1)
EVERY = re.compile(r"(\d+)s")
CRON = re.compile(r"\*/(\d+) \* \* \* \* \*")


def times(
    recurrence: Mapping[str, Any], anchor: datetime, after: datetime, until: datetime
) -> Iterator[datetime]:
    """Yield the fire times of a recurrence after `after`, up to `until`.

    Raises ValueError for a recurrence that the clients of a run do not use.
    """
    last = (
        min(until, datetime.fromisoformat(recurrence["end_at"]))
        if "end_at" in recurrence
        else until
    )
    if "run_at" in recurrence:
        at = datetime.fromisoformat(recurrence["run_at"])
        if after < at <= last:
            yield at
        return
    first, step = _first_and_interval(recurrence, anchor)
    at = first + max(0, (after - first) // step + 1) * step
    while at <= last:
        yield at
        at += step


def _first_and_interval(
    recurrence: Mapping[str, Any], anchor: datetime
) -> tuple[datetime, timedelta]:
    """Return an early fire time, and the interval between fire times.

    An interval starts at its anchor. A cron expression names the seconds of a minute that are
    multiples of a divisor of 60.
    """
    every = EVERY.fullmatch(str(recurrence.get("every")))
    if every:
        return anchor, int(every[1]) * SECOND
    cron = CRON.fullmatch(str(recurrence.get("cron")))
    if cron and 60 % int(cron[1]) == 0:
        return datetime.fromtimestamp(0, anchor.tzinfo), int(cron[1]) * SECOND
    raise ValueError(f"unsupported recurrence {recurrence}")
