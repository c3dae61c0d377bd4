"""Computes the fire times of a schedule independently of Duly, by counting seconds.

It knows only the few ways in which the clients of a run say it, and none of Duly's code, so
that it makes none of Duly's mistakes.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

SECOND = timedelta(seconds=1)
EVERY = re.compile(r"(\d+)s")
CRON = re.compile(r"\*/(\d+) \* \* \* \* \*")


def times(
    written: Mapping[str, Any], anchor: datetime, after: datetime, until: datetime
) -> Iterator[datetime]:
    """Yield the fire times of a recurrence as it was written, later than one instant, to another.

    Raises ValueError for a recurrence that no client of a run asks for.
    """
    last = min(until, datetime.fromisoformat(written["end_at"])) if "end_at" in written else until
    if "run_at" in written:
        at = datetime.fromisoformat(written["run_at"])
        if after < at <= last:
            yield at
        return
    first, step = _grid(written, anchor)
    at = first + max(0, (after - first) // step + 1) * step
    while at <= last:
        yield at
        at += step


def _grid(written: Mapping[str, Any], anchor: datetime) -> tuple[datetime, timedelta]:
    """Return one of its times before all that matter, and how far apart they are.

    An interval counts from its anchor, which is the first; a cron expression names those seconds
    of each minute that a number divides, and that number divides 60.
    """
    every = EVERY.fullmatch(str(written.get("every")))
    if every:
        return anchor, int(every[1]) * SECOND
    cron = CRON.fullmatch(str(written.get("cron")))
    if cron and 60 % int(cron[1]) == 0:
        return datetime.fromtimestamp(0, anchor.tzinfo), int(cron[1]) * SECOND
    raise ValueError(f"no client of a run asks for {written}")
