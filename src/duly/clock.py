"""The only reader of this machine's time.

Servers decide by PostgreSQL's clock, never by this one. What is left for it:
durations inside one process, which must not jump when somebody sets the clock,
and the wall time that a person reads in a log line.
"""

import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Return seconds that only ever rise, and go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> datetime:
    """Return the time of day, for people; no decision may rest on it."""
    return datetime.now(UTC)
