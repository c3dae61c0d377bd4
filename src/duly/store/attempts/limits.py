"""What a tenant has in use of what its plan grants.

Everything is counted from live rows, when it is asked for; nothing is kept beside them.
"""

from datetime import datetime

import msgspec

from duly.model.artifact import LEAST_BYTES
from duly.model.resources import NOTHING, Resources
from duly.store.database import Connection, load_statements

SQL = load_statements("limits.sql")


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has in use now."""

    now: datetime
    stored_tokens: float | None
    """What its bucket held at `filled_at`; None if it was never drawn from."""
    filled_at: datetime | None
    running: int
    resources: Resources
    waiting: int
    schedules: int = 0
    artifact_bytes: int = 0

    def tokens(self, per_hour: int, burst: int) -> float:
        """Return what its bucket holds now, at a rate: what was left, and what came since."""
        if self.stored_tokens is None or self.filled_at is None:
            return burst
        passed = max(0.0, (self.now - self.filled_at).total_seconds())
        return min(float(burst), self.stored_tokens + passed * per_hour / 3600)


class Running(msgspec.Struct, frozen=True):
    """How many tasks of one shape run."""

    needs: Resources
    times: int


async def read_used(conn: Connection, tenant_id: int) -> Used:
    """Count what a tenant has in use."""
    row = await conn.fetchrow(SQL["read_used"], tenant_id, LEAST_BYTES)
    assert row is not None  # noqa: S101 -- it begins with a row of its own
    running = msgspec.convert(row["running"], list[Running])
    resources = NOTHING
    for one in running:
        resources = resources.plus(one.needs, one.times)
    for reserved in msgspec.convert(row["reserved"], list[Resources]):
        resources = resources.plus(reserved)
    return Used(
        now=row["now"],
        stored_tokens=row["tokens"],
        filled_at=row["filled_at"],
        running=sum(one.times for one in running),
        resources=resources,
        waiting=row["waiting"],
        schedules=row["schedules"],
        artifact_bytes=row["artifact_bytes"],
    )
