"""A schedule: what is submitted again and again, and what becomes of its fire times."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from duly.model.recurrence import Recurrence
from duly.model.task import Reason


class Misfire(StrEnum):
    """What is done about fire times that nobody saw to when they came."""

    SKIP = "skip"
    ONCE = "once"
    """The last of them is made up for."""
    ALL = "all"
    """As many of them as is reasonable are made up for, the last ones."""


class Overlap(StrEnum):
    """What is done when a fire time comes while what an earlier one submitted has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OTHER = "cancel_other"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, as far as its occurrences are made from it."""

    id: int
    tenant_id: int
    user_id: int | None
    task: Mapping[str, Any] | None
    """As it was asked for: the plan completes it when it fires."""
    graph: Mapping[str, Any] | None = None
    """The same of a graph; it has the one or the other."""
    recurrence: Recurrence
    misfire: Misfire
    overlap: Overlap

    @property
    def watches(self) -> bool:
        """Say whether it matters what of it has not ended."""
        return self.overlap is not Overlap.ALLOW

    @property
    def size(self) -> int:
        """Return how many tasks an occurrence has."""
        return 1 if self.graph is None else len(self.graph["tasks"])


class Missed(msgspec.Struct, frozen=True):
    """Fire times in a row that led to nothing, and why."""

    first_at: datetime
    last_at: datetime
    times: int
    reason: Reason
