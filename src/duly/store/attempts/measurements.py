"""Resource measurements of running attempts, stored in the live row."""

from collections.abc import Sequence

import msgspec

from duly.store.database import Connection, load_statements

SQL = load_statements("measurements.sql")


class Measurement(msgspec.Struct, frozen=True):
    """How long an attempt has run, and what it has used so far; None if unknown."""

    task: int
    attempt: int
    token: int
    ran: float
    cpu_seconds: float | None
    peak_memory_mb: float | None


async def record(conn: Connection, node_id: int, measurements: Sequence[Measurement]) -> None:
    """Store a node's measurements of the attempts that it still holds."""
    await conn.execute(
        SQL["record"],
        node_id,
        [measurement.task for measurement in measurements],
        [measurement.attempt for measurement in measurements],
        [measurement.token for measurement in measurements],
        [measurement.ran for measurement in measurements],
        [measurement.cpu_seconds for measurement in measurements],
        [measurement.peak_memory_mb for measurement in measurements],
    )
