"""The evidence about a run, from four independent sources.

What clients were told, what the payloads wrote, what the database says, and which faults were
inflicted when. An invariant is a function of this value.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from tests.torture.database_dump import (
    AttemptRow,
    DatabaseDump,
    EdgeRow,
    EndRow,
    GraphRow,
    LiveRow,
    OccurrenceRow,
    TaskRow,
)
from tests.torture.history import Call
from tests.torture.journal import Step
from tests.torture.ledger import MARK, Entry

BLUR = 0.05
"""Seconds by which two times may seem out of order: /proc/uptime counts in hundredths.

A comparison of two clocks needs it at both ends of a span: what happened right after an instant
may seem to have happened right before it.
"""
CONVERGED = 30.0
"""Seconds after the end of a fault in which its consequences may still be felt."""


class FaultInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was inflicted; times are of CLOCK_BOOTTIME.

    Only these kinds mean something to the judge, and all others excuse nothing but slowness:
    `node_frozen` (every process of a host stood still), `node_killed`, `database_clock`.
    """

    kind: str
    host: str = ""
    began: float
    healed: float


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the run was made with, as far as they promise something."""

    grace: float = 10.0
    max_losses: int = 10
    max_lost_starts: int = 3
    ttl: float = 15.0
    """How long the lease of a node lasts from its latest renewal."""


EMPTY_DUMP = DatabaseDump()
DEFAULTS = Rules()


class Violation(msgspec.Struct, frozen=True):
    """Something that must not have happened."""

    invariant: int
    message: str
    task: int | None = None
    incarnation: int | None = None
    schedule: int | None = None
    at: float | None = None
    """When it happened, if that is known, by CLOCK_BOOTTIME."""

    def __str__(self) -> str:
        about = "" if self.task is None else f"task {self.task}: "
        return f"[{self.invariant}] {about}{self.message}"


@dataclass(frozen=True)
class Evidence:
    """What is judged.

    `phase` says how far the run is: `going` while tasks may still run, `quiet` when every task
    must have ended, because all is healed and nothing is submitted any more.
    """

    books: DatabaseDump = EMPTY_DUMP
    calls: Sequence[Call] = ()
    entries: Sequence[Entry] = ()
    troubles: Sequence[FaultInterval] = ()
    rules: Rules = DEFAULTS
    phase: Literal["going", "quiet"] = "going"

    @cached_property
    def tasks(self) -> Mapping[int, TaskRow]:
        return {row.id: row for row in self.books.tasks}

    @cached_property
    def live(self) -> Mapping[int, LiveRow]:
        return {row.id: row for row in self.books.live}

    @cached_property
    def ends(self) -> Mapping[int, EndRow]:
        return {row.task_id: row for row in self.books.ends}

    @cached_property
    def graphs(self) -> Mapping[int, GraphRow]:
        return {row.id: row for row in self.books.graphs}

    @cached_property
    def edges(self) -> Mapping[int, Sequence[EdgeRow]]:
        """What each task waits for."""
        found: defaultdict[int, list[EdgeRow]] = defaultdict(list)
        for edge in self.books.edges:
            found[edge.dependant_id].append(edge)
        return found

    def tasks_of(self, occurrence: OccurrenceRow) -> Sequence[int]:
        """Return the tasks that a fire time became."""
        if occurrence.graph_id is not None:
            graph = self.graphs.get(occurrence.graph_id)
            return () if graph is None else graph.task_ids
        return () if occurrence.task_id is None else (occurrence.task_id,)

    @cached_property
    def attempts(self) -> Mapping[int, Sequence[AttemptRow]]:
        """The attempts that have ended, by task."""
        found: defaultdict[int, list[AttemptRow]] = defaultdict(list)
        for row in self.books.attempts:
            found[row.task_id].append(row)
        return found

    @cached_property
    def paths(self) -> Mapping[int, Sequence[Step]]:
        """The steps of each task, in order."""
        found: defaultdict[int, list[Step]] = defaultdict(list)
        for step in self.books.journal:
            if step.task is not None:
                found[step.task].append(step)
        return found

    @cached_property
    def written(self) -> Mapping[tuple[int, int], Sequence[Entry]]:
        """The ledger, by (task, attempt)."""
        found: defaultdict[tuple[int, int], list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.task, entry.attempt].append(entry)
        return found

    @cached_property
    def dead_letters(self) -> frozenset[int]:
        return frozenset(self.books.dead_letters)

    @cached_property
    def taken(self) -> frozenset[int]:
        """The tasks that a person has taken out of the dead letters."""
        kinds = ("dropped", "replayed")
        return frozenset(one.task_id for one in self.books.events if one.kind in kinds)

    @cached_property
    def _leased_to(self) -> Mapping[tuple[int | None, int | None], str]:
        """The node of each (task, attempt)."""
        return {
            (step.task, step.attempt): self.nodes[step.node]
            for step in self.books.journal
            if step.token is not None and step.node is not None and step.node in self.nodes
        }

    @cached_property
    def last_words(self) -> Mapping[int, float]:
        """When each task wrote its last entry."""
        return {entry.task: entry.at for entry in self.entries}

    @cached_property
    def nodes(self) -> Mapping[int, str]:
        return {row.id: row.name for row in self.books.nodes}

    def node_of(self, entry: Entry) -> str:
        """Return the node that an entry was written on: as its folder says, or else its lease."""
        if entry.node in self.nodes.values():
            return entry.node
        return self._leased_to.get((entry.task, entry.attempt), entry.node)

    def writes_ledger(self, task: int) -> bool:
        """Say whether a task's payload is one that writes the ledger."""
        return task in self.tasks and MARK in self.tasks[task].source

    def clock_stepped(self, since: float, until: float) -> bool:
        """Say whether PostgreSQL's clock was set between the two times, or was still wrong."""
        return any(
            one.kind == "database_clock"
            and one.began - BLUR <= until
            and since <= one.healed + BLUR
            for one in self.troubles
        )

    def trouble_between(self, since: float, until: float, *, host: str | None = None) -> float:
        """Return how many of the seconds between fell into a fault or its aftermath.

        With `host`, only faults of that host count, and they have no aftermath.
        """
        after = CONVERGED if host is None else 0.0
        spans = sorted(
            (max(one.began, since), min(one.healed + after, until))
            for one in self.troubles
            if host is None or one.host == host
        )
        seconds, reached = 0.0, since
        for begin, end in spans:
            seconds += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return seconds
