"""What actors were told, and when.

Where the order of an answer against the writes matters, it comes with the place in the
journal at which it was given.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from duly import wire
from duly.model.task import Outcome, TaskSpec


@dataclass
class Answer:
    """What an actor was told, after everything up to `place` in the journal was written."""

    op: str
    about: int
    value: bool = True
    asked: "Answer | None" = None
    pid: int | None = None
    place: int = -1


@dataclass
class Told:
    """What actors were told."""

    answers: list[Answer] = field(default_factory=list)

    submits: list[tuple[str | None, TaskSpec, int, bool]] = field(default_factory=list)
    reports: list[tuple[wire.AttemptRef, Outcome, bool]] = field(default_factory=list)
    updates: list[tuple[int, str, Any]] = field(default_factory=list)
    tried_updates: list[tuple[int, str, Any]] = field(default_factory=list)
    batches: list[tuple[str, list[int]]] = field(default_factory=list)
    small: list[tuple[str | None, int]] = field(default_factory=list)
    """Keys and tasks of the tenant that has limits."""
    alone: set[int] = field(default_factory=set)
    """Tasks that somebody paused or resumed, or tried to, and not with their graphs."""
    tried_reports: set[wire.AttemptRef] = field(default_factory=set)
    """Attempts that their nodes have ended and begun to report."""
    marks: list[tuple[int, str]] = field(default_factory=list)
    """Tasks that were marked, and as what."""
    removals: dict[int, datetime] = field(default_factory=dict)
    """Schedules that were removed, and a time before that."""
    repairs: int = 0
