"""Queues: where tasks that are ready to run wait, in the order in which they are served."""

from collections.abc import Iterable
from datetime import datetime, time
from enum import StrEnum

import msgspec


class Queue(StrEnum):
    """The built-in queues, in the order in which they are served."""

    URGENT = "urgent"
    """Requested, or the delay tolerance is nearly used up."""
    PERIODIC = "periodic"
    """Occurrences of schedules."""
    DELAYABLE = "delayable"
    """All other tasks."""
    OFF_PEAK = "off_peak"
    """Waits for low load, as long as the delay tolerance allows."""


REQUESTABLE = (Queue.URGENT, Queue.OFF_PEAK)
"""The built-in queues that a task may request; the others follow from the task itself."""
URGENT_LEVEL = 0
"""The level of `urgent` alone: no other queue is served before it."""
MAX_LEVEL = 99


class OpeningHours(msgspec.Struct, frozen=True):
    """A daily window in the wall time of a time zone; it crosses midnight if it ends earlier."""

    opens: time
    closes: time
    timezone: str = "UTC"

    def __str__(self) -> str:
        """Return the window as it is requested, such as `22:00-06:00`."""
        return f"{self.opens:%H:%M}-{self.closes:%H:%M}"


class QueueDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: when it is served, and what its tasks may hold."""

    name: str
    level: int
    """Queues with a lower level are served first."""
    off_peak: bool = False
    """Whether its tasks wait for low load, as those of `off_peak` do."""
    max_share: float | None = None
    """The share of the fleet that its running tasks may hold, from 0 to 1; None is no limit."""
    hours: OpeningHours | None = None
    """When its tasks may start; None is always."""
    paused_at: datetime | None = None
    paused_by: str | None = None

    @property
    def is_paused(self) -> bool:
        """Return True if none of its tasks start until it is resumed."""
        return self.paused_at is not None

    @property
    def is_built_in(self) -> bool:
        """Return True if it cannot be removed, and keeps its level."""
        return self.name in BUILT_IN_LEVELS

    @property
    def is_restricted(self) -> bool:
        """Return True if its tasks may have to wait for something besides their turn."""
        return self.is_paused or self.hours is not None or self.max_share is not None


BUILT_IN_LEVELS = {
    Queue.URGENT: URGENT_LEVEL,
    Queue.PERIODIC: 20,
    Queue.DELAYABLE: 30,
    Queue.OFF_PEAK: 40,
}


class QueueDefinitions:
    """All queues, by name. A task whose queue was removed waits in `delayable`."""

    def __init__(self, definitions: Iterable[QueueDefinition] = ()) -> None:
        """Take the definitions; built-in queues that are missing are as they are at first."""
        built_in = [
            QueueDefinition(name=name, level=level, off_peak=name is Queue.OFF_PEAK)
            for name, level in BUILT_IN_LEVELS.items()
        ]
        self.by_name = {definition.name: definition for definition in (*built_in, *definitions)}
        self.off_peak = frozenset(name for name, each in self.by_name.items() if each.off_peak)
        self.is_restricted = any(each.is_restricted for each in self.by_name.values())
        """Whether any queue is paused, or has hours or a maximum share."""

    def get(self, name: str | None) -> QueueDefinition:
        """Return the queue of a shape; None is `delayable`."""
        return self.by_name.get(name or Queue.DELAYABLE) or self.by_name[Queue.DELAYABLE]


BUILT_IN_QUEUES = QueueDefinitions()
