"""Pauses: when a task was paused, and by whom or with which graph."""

from datetime import datetime

import msgspec


class PauseCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who paused a task, or the graph that it was paused with; old pauses have neither."""

    by: str | None = None
    """The actor, named as in the audit log."""
    graph: str | None = None


class Pause(msgspec.Struct, frozen=True):
    """When a task was paused, and why."""

    at: datetime
    cause: PauseCause
