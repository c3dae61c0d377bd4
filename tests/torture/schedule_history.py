"""Reconstructs the versions of a schedule, and what became of its fire times, from the journal."""

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

FOR_EVER = datetime.max.replace(tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
LONGEST = timedelta(hours=1)
"""Nothing of a run that is judged lasts longer; so a rule without an end has one here."""


@dataclass(frozen=True)
class Version:
    """A schedule as it was left by a change."""

    step: Step

    @property
    def row(self) -> dict[str, Any]:
        return self.step.row or {}

    @property
    def since(self) -> datetime:
        """From when on it holds, by the clock by which schedules fire."""
        return datetime.fromisoformat(self.row["updated_at"])

    @property
    def next_run_at(self) -> datetime | None:
        next_at = self.row["next_run_at"]
        return None if next_at is None else datetime.fromisoformat(next_at)

    @property
    def is_paused(self) -> bool:
        return self.row["paused_at"] is not None

    def times(self, after: datetime, until: datetime) -> list[datetime]:
        """Return its fire times after an instant, up to another."""
        return list(fire_times.times(self.row["recurrence"], self._anchor, after, until))

    def has(self, at: datetime) -> bool:
        """Say whether it fires at an instant."""
        return at in self.times(at - MOMENT, at)

    @property
    def _anchor(self) -> datetime:
        return datetime.fromisoformat(self.row["anchor"])


@dataclass(frozen=True)
class ScheduleHistory:
    """One schedule: its versions, and the steps in which its fire times were seen to."""

    schedule: int
    versions: Sequence[Version]
    claims: Sequence[Step]
    outcomes: Sequence[OccurrenceRow]
    left: ScheduleRow | None
    """What is left of it at the end of the run, if it was not removed."""

    def version_at(self, seq: int) -> Version | None:
        """Return what it was at a step; None before it was made and after it was removed."""
        before = [one for one in self.versions if one.step.seq < seq]
        return before[-1] if before and before[-1].step.op != "delete" else None

    def due(self) -> Iterator[datetime]:
        """Yield the fire times to which somebody has to have seen."""
        ends = [one.since for one in self.versions[1:] if one.step.op != "delete"]
        # A clock that is set back does not bring back what has passed.
        since = accumulate((one.since for one in self.versions), max)
        for version, after, end in zip_longest(self.versions[: len(ends) + 1], since, ends):
            if version is not None:
                until = min(end or FOR_EVER, self._came_to - MOMENT, after + LONGEST)
                yield from version.times(after, until)

    @property
    def _came_to(self) -> datetime:
        """Return the fire time to which nobody has seen: it was removed, or paused, before."""
        last = self.versions[-1]
        came_to = None if self.left is None else self.left.next_run_at
        if last.step.op == "delete":
            came_to = last.next_run_at
        return FOR_EVER if came_to is None else came_to

    @cached_property
    def became(self) -> dict[datetime, OccurrenceRow]:
        """What became of a fire time that was claimed."""
        return {row.fire_at: row for row in self.outcomes}

    def is_seen_to(self, at: datetime) -> bool:
        """Say whether it is recorded what became of a fire time."""
        return at in self.became or any(
            row.fire_at < at <= row.last_at for row in self.outcomes if row.last_at is not None
        )


def fire_at(claim: Step) -> datetime:
    """Return the fire time that was claimed in a step."""
    return datetime.fromisoformat((claim.row or {})["fire_at"])


def lives(evidence: Evidence) -> list[ScheduleHistory]:
    """Return every schedule whose beginning the journal knows."""
    versions: defaultdict[int, list[Version]] = defaultdict(list)
    claims: defaultdict[int, list[Step]] = defaultdict(list)
    outcomes: defaultdict[int, list[OccurrenceRow]] = defaultdict(list)
    for step in evidence.books.journal:
        if step.what == "schedule" and step.schedule is not None:
            versions[step.schedule].append(Version(step))
        if (step.what, step.op) == ("occurrence", "insert") and step.schedule is not None:
            claims[step.schedule].append(step)
    for row in evidence.books.occurrences:
        outcomes[row.schedule_id].append(row)
    left = {row.id: row for row in evidence.books.schedules}
    return [
        ScheduleHistory(one, versions[one], claims[one], outcomes[one], left.get(one))
        for one in sorted(versions.keys() | claims.keys() | outcomes.keys())
        if not versions[one] or versions[one][0].step.op == "insert"
    ]
