"""A tenant's current usage of its plan's limits.

Usage is counted from live rows on request; no counters are stored.
"""

from datetime import datetime

import msgspec

from duly.model.artifact import MIN_ACCOUNTED_BYTES
from duly.model.resources import NO_RESOURCES, Resources
from duly.store.database import Connection, load_statements

SQL = load_statements("limits.sql")


class CurrentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's usage at `now`."""

    now: datetime
    stored_tokens: float | None
    """Tokens in its bucket at `filled_at`; None if it was never drawn from."""
    filled_at: datetime | None
    running: int
    resources: Resources
    waiting: int
    schedules: int = 0
    artifact_bytes: int = 0

    def tokens(self, per_hour: int, burst: int) -> float:
        """Return the tokens in its bucket now, refilled at the given rate."""
        if self.stored_tokens is None or self.filled_at is None:
            return burst
        elapsed = max(0.0, (self.now - self.filled_at).total_seconds())
        return min(float(burst), self.stored_tokens + elapsed * per_hour / 3600)


class RunningShape(msgspec.Struct, frozen=True):
    """The number of running tasks of one shape."""

    needs: Resources
    times: int


async def read_current_usage(conn: Connection, tenant_id: int) -> CurrentUsage:
    """Count a tenant's usage."""
    row = await conn.fetchrow(SQL["read_current_usage"], tenant_id, MIN_ACCOUNTED_BYTES)
    assert row is not None  # noqa: S101 -- the statement always returns one row
    running = msgspec.convert(row["running"], list[RunningShape])
    resources = NO_RESOURCES
    for shape in running:
        resources = resources.plus(shape.needs, shape.times)
    for reserved in msgspec.convert(row["reserved"], list[Resources]):
        resources = resources.plus(reserved)
    return CurrentUsage(
        now=row["now"],
        stored_tokens=row["tokens"],
        filled_at=row["filled_at"],
        running=sum(shape.times for shape in running),
        resources=resources,
        waiting=row["waiting"],
        schedules=row["schedules"],
        artifact_bytes=row["artifact_bytes"],
    )
