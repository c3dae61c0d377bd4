"""The evidence about a run, from four independent sources.

The calls of clients, the ledger of the payloads, the database with its journal, and the injected
faults. An invariant is a function of this value.
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
from tests.torture.ledger import LEDGER_MARK, Entry

CLOCK_TOLERANCE = 0.05
"""Seconds by which two times may appear out of order: /proc/uptime has a resolution of 0.01 s.

A comparison of two clocks needs it at both ends of an interval.
"""
CONVERGENCE_SECONDS = 30.0
"""Seconds after the end of a fault during which its effects are excused."""


class FaultInterval(msgspec.Struct, frozen=True, kw_only=True):
    """An injected fault, with times of CLOCK_BOOTTIME.

    All kinds excuse delays. These also excuse more: `node_frozen` (all processes of a host were
    frozen), `node_killed`, `database_clock`.
    """

    kind: str
    host: str = ""
    began: float
    healed: float


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the run that invariants depend on."""

    grace: float = 10.0
    max_losses: int = 10
    max_lost_starts: int = 3
    ttl: float = 15.0
    """How long the lease of a node lasts after its latest renewal."""


EMPTY_DUMP = DatabaseDump()
DEFAULT_SETTINGS = RunSettings()


class Violation(msgspec.Struct, frozen=True):
    """A violation of an invariant."""

    invariant: int
    message: str
    task: int | None = None
    incarnation: int | None = None
    schedule: int | None = None
    at: float | None = None
    """When it happened, by CLOCK_BOOTTIME, if that is known."""

    def __str__(self) -> str:
        about = "" if self.task is None else f"task {self.task}: "
        return f"[{self.invariant}] {about}{self.message}"


@dataclass(frozen=True)
class Evidence:
    """The input of all invariants.

    `phase` is `going` while tasks may still run, and `quiet` when every task must have ended,
    because all faults are healed and nothing is submitted any more.
    """

    dump: DatabaseDump = EMPTY_DUMP
    calls: Sequence[Call] = ()
    entries: Sequence[Entry] = ()
    faults: Sequence[FaultInterval] = ()
    settings: RunSettings = DEFAULT_SETTINGS
    phase: Literal["going", "quiet"] = "going"

    @cached_property
    def tasks(self) -> Mapping[int, TaskRow]:
        return {row.id: row for row in self.dump.tasks}

    @cached_property
    def live(self) -> Mapping[int, LiveRow]:
        return {row.id: row for row in self.dump.live}

    @cached_property
    def ends(self) -> Mapping[int, EndRow]:
        return {row.task_id: row for row in self.dump.ends}

    @cached_property
    def graphs(self) -> Mapping[int, GraphRow]:
        return {row.id: row for row in self.dump.graphs}

    @cached_property
    def edges(self) -> Mapping[int, Sequence[EdgeRow]]:
        """The dependencies of each task."""
        by_task: defaultdict[int, list[EdgeRow]] = defaultdict(list)
        for edge in self.dump.edges:
            by_task[edge.dependant_id].append(edge)
        return by_task

    def tasks_of(self, occurrence: OccurrenceRow) -> Sequence[int]:
        """Return the tasks of an occurrence."""
        if occurrence.graph_id is not None:
            graph = self.graphs.get(occurrence.graph_id)
            return () if graph is None else graph.task_ids
        return () if occurrence.task_id is None else (occurrence.task_id,)

    @cached_property
    def attempts(self) -> Mapping[int, Sequence[AttemptRow]]:
        """The attempts that have ended, by task."""
        by_task: defaultdict[int, list[AttemptRow]] = defaultdict(list)
        for row in self.dump.attempts:
            by_task[row.task_id].append(row)
        return by_task

    @cached_property
    def steps_by_task(self) -> Mapping[int, Sequence[Step]]:
        """The steps of each task, in order."""
        by_task: defaultdict[int, list[Step]] = defaultdict(list)
        for step in self.dump.journal:
            if step.task is not None:
                by_task[step.task].append(step)
        return by_task

    @cached_property
    def entries_by_attempt(self) -> Mapping[tuple[int, int], Sequence[Entry]]:
        """The entries of the ledger, by (task, attempt)."""
        by_attempt: defaultdict[tuple[int, int], list[Entry]] = defaultdict(list)
        for entry in self.entries:
            by_attempt[entry.task, entry.attempt].append(entry)
        return by_attempt

    @cached_property
    def dead_letters(self) -> frozenset[int]:
        return frozenset(self.dump.dead_letters)

    @cached_property
    def handled_dead_letters(self) -> frozenset[int]:
        """The tasks that were dropped or replayed from the dead letters."""
        kinds = ("dropped", "replayed")
        return frozenset(event.task_id for event in self.dump.events if event.kind in kinds)

    @cached_property
    def _leased_to(self) -> Mapping[tuple[int | None, int | None], str]:
        """The node of each (task, attempt)."""
        return {
            (step.task, step.attempt): self.nodes[step.node]
            for step in self.dump.journal
            if step.token is not None and step.node is not None and step.node in self.nodes
        }

    @cached_property
    def last_entry_at(self) -> Mapping[int, float]:
        """When each task wrote its last entry."""
        return {entry.task: entry.at for entry in self.entries}

    @cached_property
    def nodes(self) -> Mapping[int, str]:
        return {row.id: row.name for row in self.dump.nodes}

    def node_of(self, entry: Entry) -> str:
        """Return the node on which an entry was written, by its folder, or else by its lease."""
        if entry.node in self.nodes.values():
            return entry.node
        return self._leased_to.get((entry.task, entry.attempt), entry.node)

    def writes_ledger(self, task: int) -> bool:
        """Return True if the payload of a task writes to the ledger."""
        return task in self.tasks and LEDGER_MARK in self.tasks[task].source

    def clock_stepped(self, since: float, until: float) -> bool:
        """Return True if PostgreSQL's clock was changed, or was wrong, between two times."""
        return any(
            fault.kind == "database_clock"
            and fault.began - CLOCK_TOLERANCE <= until
            and since <= fault.healed + CLOCK_TOLERANCE
            for fault in self.faults
        )

    def fault_seconds(self, since: float, until: float, *, host: str | None = None) -> float:
        """Return how many of the seconds between two times fell into a fault or its aftermath.

        With `host`, only faults of that host count, without an aftermath.
        """
        aftermath = CONVERGENCE_SECONDS if host is None else 0.0
        spans = sorted(
            (max(fault.began, since), min(fault.healed + aftermath, until))
            for fault in self.faults
            if host is None or fault.host == host
        )
        seconds, reached = 0.0, since
        for begin, end in spans:
            seconds += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return seconds
