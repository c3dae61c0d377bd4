"""A simulated task, with the fields that ranking and placement read."""

from datetime import UTC, datetime, timedelta
from functools import cache

import msgspec

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant at which simulated time is 0. Midnight, so that daily peaks are easy to read."""


class SimTask(msgspec.Struct, gc=False):
    """A task; times are in seconds of simulated time, but for those that policies compare."""

    id: int
    tenant_id: int
    shape_id: int
    class_id: int
    arrived: float
    run_time: float
    start_by: datetime
    delay_tolerance: timedelta
    execution_cap: timedelta
    priority: int = 0
    remaining_path: int = 0
    job: int = 0
    parts: int = 1
    """A job of a trace that is larger than a node runs as several tasks with the same `job`."""
    started: float = -1.0
    """When its first attempt began."""
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    avoid_node_id: int | None = None
    expected_run_time: timedelta = timedelta.max
    """What its rank depends on, as a server would know it when the task arrives."""
    run_time_bound: timedelta = timedelta.max
    """Within which it ends, very likely or by its cap."""


def instant(seconds: float) -> datetime:
    """Return the instant at a simulated time."""
    return EPOCH + timedelta(seconds=seconds)


@cache
def second(seconds: int) -> datetime:
    """Return the instant at a whole second; tasks of one second share it."""
    return EPOCH + timedelta(seconds=seconds)
