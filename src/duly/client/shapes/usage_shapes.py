"""JSON types of usage and its price."""

from typing import TypedDict


class UsageRow(TypedDict):
    """Usage of one group; keys that it is not grouped by are None."""

    day: str | None
    tenant: str | None
    user: str | None
    tier: str | None
    urgency: str | None
    tasks: int
    attempts: int
    cpu_seconds: float
    granted_cpu_seconds: float
    granted_memory_mb_seconds: float
    price: str


class UsageReport(TypedDict):
    """Usage for a range of days, both inclusive."""

    since: str
    until: str
    items: list[UsageRow]
    total: UsageRow
    next_cursor: str | None
