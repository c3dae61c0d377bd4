"""The responses that actors received, with their position in the journal.

An invariant about the order of a response and of writes compares that position with theirs.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from duly import wire
from duly.model.task import Outcome, TaskSpec


@dataclass
class Answer:
    """A response; everything up to `position` in the journal was written before it."""

    op: str
    subject: int
    value: bool = True
    request: "Answer | None" = None
    """An entry with the journal position at which the actor sent its request."""
    pid: int | None = None
    position: int = -1


@dataclass
class Acknowledgements:
    """All responses of a run."""

    answers: list[Answer] = field(default_factory=list)

    submits: list[tuple[str | None, TaskSpec, int, bool]] = field(default_factory=list)
    reports: list[tuple[wire.AttemptRef, Outcome, bool]] = field(default_factory=list)
    updates: list[tuple[int, str, Any]] = field(default_factory=list)
    tried_updates: list[tuple[int, str, Any]] = field(default_factory=list)
    batches: list[tuple[str, list[int]]] = field(default_factory=list)
    limited_submits: list[tuple[str | None, int]] = field(default_factory=list)
    """Keys and tasks of the tenant that has limits."""
    paused_alone: set[int] = field(default_factory=set)
    """Tasks that an actor tried to pause or resume by themselves, not with their graph."""
    tried_reports: set[wire.AttemptRef] = field(default_factory=set)
    """Attempts that their nodes have ended and begun to report."""
    marks: list[tuple[int, str]] = field(default_factory=list)
    """Tasks that were marked, and as what."""
    removals: dict[int, datetime] = field(default_factory=dict)
    """Removed schedules, with a time before the removal."""
    repairs: int = 0
