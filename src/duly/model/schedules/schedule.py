"""Schedules: the template that each fire time submits, and its misfire and overlap policies."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from duly.model.schedules.recurrence import Recurrence
from duly.model.task import Reason


class Misfire(StrEnum):
    """What happens to fire times that were not handled in time."""

    SKIP = "skip"
    ONCE = "once"
    """The last missed one runs."""
    ALL = "all"
    """The last missed ones run, up to a limit (`policy/schedules/firing.py`)."""


class Overlap(StrEnum):
    """What happens at a fire time while an earlier occurrence has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OTHER = "cancel_other"


class ScheduleTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a schedule that its occurrences are created from."""

    id: int
    tenant_id: int
    user_id: int | None
    task: Mapping[str, Any] | None
    """As requested: the plan's defaults are applied at each fire time."""
    graph: Mapping[str, Any] | None = None
    """As requested; a schedule has either a task or a graph."""
    recurrence: Recurrence
    misfire: Misfire
    overlap: Overlap

    @property
    def checks_overlap(self) -> bool:
        """Return True if live occurrences affect whether a fire time runs."""
        return self.overlap is not Overlap.ALLOW

    @property
    def size(self) -> int:
        """Return the number of tasks of an occurrence."""
        return 1 if self.graph is None else len(self.graph["tasks"])


class MissedFireTimes(msgspec.Struct, frozen=True):
    """Consecutive fire times that did not run, and the reason."""

    first_at: datetime
    last_at: datetime
    times: int
    reason: Reason
