"""Counts the waiting tasks of all tenants by queue, for the metrics."""

from datetime import timedelta

import msgspec

from duly.store.database import Connection, load_statements

SQL = load_statements("queue_gauges.sql")


class WaitingTasks(msgspec.Struct, frozen=True):
    """Waiting tasks that were submitted to one queue, and the seconds that the oldest has waited.

    `is_urgent` says whether they are nearly out of slack, which makes them urgent in any queue.
    """

    queue: str | None
    is_urgent: bool
    tasks: int
    oldest_wait: float


async def count_waiting(conn: Connection, *, urgent_slack: timedelta) -> list[WaitingTasks]:
    """Count the waiting tasks of all tenants, up to 100,000 of the oldest."""
    rows = await conn.fetch(SQL["count_waiting"], urgent_slack)
    return [msgspec.convert(dict(row), WaitingTasks) for row in rows]
