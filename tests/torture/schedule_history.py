"""Reconstructs the versions of a schedule and its occurrences from the journal."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Any

from tests.torture import fire_times
from tests.torture.database_dump import OccurrenceRow, ScheduleRow
from tests.torture.evidence import Evidence
from tests.torture.journal import Step

MAX_TIME = datetime.max.replace(tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MAX_DURATION = timedelta(hours=1)
"""Bounds recurrences without an end; no run takes longer."""


@dataclass(frozen=True)
class Version:
    """A version of a schedule."""

    step: Step

    @property
    def row(self) -> dict[str, Any]:
        return self.step.row or {}

    @property
    def since(self) -> datetime:
        """When the version took effect, by the clock by which schedules fire."""
        return datetime.fromisoformat(self.row["updated_at"])

    @property
    def next_run_at(self) -> datetime | None:
        next_at = self.row["next_run_at"]
        return None if next_at is None else datetime.fromisoformat(next_at)

    @property
    def is_paused(self) -> bool:
        return self.row["paused_at"] is not None

    def times(self, after: datetime, until: datetime) -> list[datetime]:
        """Return the fire times after `after`, up to `until`."""
        return list(fire_times.times(self.row["recurrence"], self._anchor, after, until))

    def has(self, at: datetime) -> bool:
        """Return True if `at` is a fire time."""
        return at in self.times(at - MICROSECOND, at)

    @property
    def _anchor(self) -> datetime:
        return datetime.fromisoformat(self.row["anchor"])


@dataclass(frozen=True)
class ScheduleHistory:
    """One schedule: its versions, and the steps in which its fire times were claimed."""

    id: int
    versions: Sequence[Version]
    claims: Sequence[Step]
    occurrences: Sequence[OccurrenceRow]
    final_row: ScheduleRow | None
    """The row at the end of the run; None if it was removed."""

    def version_at(self, seq: int) -> Version | None:
        """Return the version at a step; None before the creation and after the removal."""
        before = [version for version in self.versions if version.step.seq < seq]
        return before[-1] if before and before[-1].step.op != "delete" else None

    def expected_fire_times(self) -> Iterator[datetime]:
        """Yield the fire times that have to be recorded."""
        ends = [version.since for version in self.versions[1:] if version.step.op != "delete"]
        # Fire times that have passed do not recur when the clock is set back.
        since = accumulate((version.since for version in self.versions), max)
        for version, after, end in zip_longest(self.versions[: len(ends) + 1], since, ends):
            if version is not None:
                until = min(
                    end or MAX_TIME, self._first_unprocessed - MICROSECOND, after + MAX_DURATION
                )
                yield from version.times(after, until)

    @property
    def _first_unprocessed(self) -> datetime:
        """Return the first fire time that was not processed, because of a removal or a pause."""
        last = self.versions[-1]
        unprocessed = None if self.final_row is None else self.final_row.next_run_at
        if last.step.op == "delete":
            unprocessed = last.next_run_at
        return MAX_TIME if unprocessed is None else unprocessed

    @cached_property
    def occurrence_by_fire_time(self) -> dict[datetime, OccurrenceRow]:
        """The occurrences, by fire time."""
        return {row.fire_at: row for row in self.occurrences}

    def is_recorded(self, at: datetime) -> bool:
        """Return True if there is an occurrence for a fire time."""
        return at in self.occurrence_by_fire_time or any(
            row.fire_at < at <= row.last_at for row in self.occurrences if row.last_at is not None
        )


def fire_at(claim: Step) -> datetime:
    """Return the fire time of a claim."""
    return datetime.fromisoformat((claim.row or {})["fire_at"])


def schedule_histories(evidence: Evidence) -> list[ScheduleHistory]:
    """Return every schedule whose creation is in the journal."""
    versions: defaultdict[int, list[Version]] = defaultdict(list)
    claims: defaultdict[int, list[Step]] = defaultdict(list)
    occurrences: defaultdict[int, list[OccurrenceRow]] = defaultdict(list)
    for step in evidence.dump.journal:
        if step.what == "schedule" and step.schedule is not None:
            versions[step.schedule].append(Version(step))
        if (step.what, step.op) == ("occurrence", "insert") and step.schedule is not None:
            claims[step.schedule].append(step)
    for row in evidence.dump.occurrences:
        occurrences[row.schedule_id].append(row)
    final_rows = {row.id: row for row in evidence.dump.schedules}
    return [
        ScheduleHistory(id_, versions[id_], claims[id_], occurrences[id_], final_rows.get(id_))
        for id_ in sorted(versions.keys() | claims.keys() | occurrences.keys())
        if not versions[id_] or versions[id_][0].step.op == "insert"
    ]
