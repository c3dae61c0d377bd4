"""Pauses: when a task was paused, and by whom or what."""

from datetime import datetime

import msgspec


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who paused a task, or the graph that it was paused with; neither is known of old ones."""

    by: str | None = None
    """As the audit log calls them."""
    graph: str | None = None


class Pause(msgspec.Struct, frozen=True):
    """When a task was paused, and why."""

    at: datetime
    cause: Cause
