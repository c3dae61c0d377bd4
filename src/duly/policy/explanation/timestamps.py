"""Writes times in explanations: in UTC, to the second."""

from datetime import datetime


def timestamp(at: datetime) -> str:
    """Return a time as in `2026-01-31T12:00:00Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
