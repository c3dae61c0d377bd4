"""The only reader of this machine's clocks.

Servers decide by PostgreSQL's clock, never by this one. It serves durations within one process,
which must not jump when the clock is set, and wall times in log lines for people.
"""

import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Return monotonic seconds that keep counting while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall() -> datetime:
    """Return the wall time for display; no decision may depend on it."""
    return datetime.now(UTC)
