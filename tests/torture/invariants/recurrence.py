"""Invariant 9: each fire time of a schedule has one task or graph, or a reason why it has none.

The fire times are computed from the versions of a schedule in the journal, independently of Duly's
code. Fire times after the removal or the final pause of a schedule do not count.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from tests.torture.evidence import CONVERGENCE_SECONDS, Evidence, Violation
from tests.torture.invariants import overlaps, whole_graphs
from tests.torture.schedule_history import (
    MICROSECOND,
    ScheduleHistory,
    Version,
    fire_at,
    schedule_histories,
)

NAME_PREFIX = "of schedule "
"""The prefix of the names of tasks that schedules submit in a run."""
MAX_DELAY_SECONDS = 5.0
"""Seconds between a fire time and the submission of its task, without faults."""
POLICIES_BY_REASON = {
    "too_late": ("misfire", ("skip",)),
    "made_up_for": ("misfire", ("once",)),
    "too_many_missed": ("misfire", ("all",)),
    "overlap": ("overlap", ("skip", "cancel_other")),
}
"""The policies that allow these reasons; other reasons are allowed with any policy."""


def recurrence(evidence: Evidence) -> list[Violation]:
    """9: no fire time is missing, duplicated, incomplete or late, and none is invented."""
    violations = [
        Violation(9, f"schedule {schedule.id}: {message}", schedule=schedule.id)
        for schedule in schedule_histories(evidence)
        for check in (
            _missing,
            _unexpected,
            _wrong_reasons,
            _late_or_early,
            whole_graphs.incomplete_graphs,
            overlaps.overlaps,
        )
        for message in check(evidence, schedule)
    ]
    return [*violations, *_duplicates(evidence), *_ineffective_calls(evidence)]


def _missing(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    for at in schedule.expected_fire_times():
        if not schedule.is_recorded(at):
            yield f"{at} has passed without a record"
    row = schedule.final_row
    is_late = row is not None and not row.paused and row.due_ago > CONVERGENCE_SECONDS
    if evidence.phase == "quiet" and is_late and row is not None:
        yield f"has been due since {row.next_run_at}"


def _unexpected(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    """Compare each claimed fire time with the version of the schedule at that step."""
    for claim in schedule.claims:
        at = fire_at(claim)
        version, row = schedule.version_at(claim.seq), schedule.occurrence_by_fire_time.get(at)
        if version is None:
            yield f"{at} was claimed when the schedule did not exist"
        elif not version.has(at):
            yield f"{at} is not one of its fire times"
        elif version.is_paused and row is not None and row.result_text is not None:
            yield f"{at} became {row.result_text} while it was paused"
        if row is not None and row.task_id is not None and row.task_id not in evidence.tasks:
            yield f"the task {row.task_id} of {at} does not exist"


def _wrong_reasons(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    for claim in schedule.claims:
        row, version = (
            schedule.occurrence_by_fire_time.get(fire_at(claim)),
            schedule.version_at(claim.seq),
        )
        if row is None or version is None or row.result_text is not None:
            continue
        field, allowed = POLICIES_BY_REASON.get(row.reason or "", ("", ()))
        if row.reason is None or (field and version.row[field] not in allowed):
            yield f"{row.fire_at} has the reason {row.reason}, which its policies do not allow"
        if row.reason == "paused" and not version.is_paused:
            yield f"{row.fire_at} has the reason paused, and the schedule was not paused"
        if row.last_at is not None and row.times != _count_fire_times(
            version, row.fire_at, row.last_at
        ):
            yield f"from {row.fire_at} to {row.last_at} there are not {row.times} fire times"


def _count_fire_times(version: Version, first: datetime, last: datetime) -> int:
    return len(version.times(first - MICROSECOND, last))


def _late_or_early(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    """Compare the time of submission with the fire time."""
    for claim in schedule.claims:
        at = fire_at(claim)
        row = schedule.occurrence_by_fire_time.get(at)
        if row is None or row.result_text is None:
            continue
        recorded = datetime.fromisoformat((claim.row or {})["recorded_at"])
        late = (recorded - at).total_seconds()
        since = claim.computed_at - max(late, 0.0)
        if evidence.clock_stepped(since, claim.boot):
            continue
        if late < 0:
            yield f"{row.result_text} of {at} was submitted {-late:.2f} s early"
        if late > MAX_DELAY_SECONDS + evidence.fault_seconds(since, claim.boot):
            yield f"{row.result_text} of {at} was submitted {late:.1f} s late"


def _duplicates(evidence: Evidence) -> Iterator[Violation]:
    """Find fire times with two occurrences, by the records and by the names of tasks alone.

    The tasks of a graph have different names, and may start at the same time.
    """
    recorded = Counter((row.schedule_id, row.fire_at) for row in evidence.dump.occurrences)
    for (schedule, at), count in recorded.items():
        if count > 1:
            message = f"schedule {schedule}: {at} was recorded {count} times"
            yield Violation(9, message, schedule=schedule)
    stored = Counter(
        (row.name, row.run_at)
        for row in evidence.dump.tasks
        if row.name is not None and row.name.startswith(NAME_PREFIX) and row.replay_of is None
    )
    for (name, run_at), count in stored.items():
        if count > 1:
            yield Violation(9, f"{count} tasks {name!r} have the fire time {run_at}")
    claimed = Counter(row.graph_id for row in evidence.dump.occurrences)
    for graph, count in claimed.items():
        if graph is not None and count > 1:
            yield Violation(9, f"the graph {graph} belongs to {count} fire times")


def _ineffective_calls(evidence: Evidence) -> Iterator[Violation]:
    """Find acknowledged operations on schedules that had no effect."""
    known = {schedule.id: schedule for schedule in schedule_histories(evidence)}
    for call in evidence.calls:
        if call.outcome != "ok" or call.result is None or not call.op.endswith(" schedule"):
            continue
        schedule_id = int(call.result["schedule"])
        schedule = known.get(schedule_id)
        if schedule is None or not any(
            _is_effect_of(call.op, version) for version in schedule.versions
        ):
            message = f"schedule {schedule_id}: {call.op} was acknowledged and had no effect"
            yield Violation(9, message, schedule=schedule_id, at=call.returned)


def _is_effect_of(op: str, version: Version) -> bool:
    match op:
        case "create schedule":
            return version.step.op == "insert"
        case "remove schedule":
            return version.step.op == "delete"
        case "pause schedule":
            return version.step.op == "update" and version.is_paused
        case "resume schedule":
            return not version.is_paused  # Resuming one that is not paused changes nothing.
        case _:
            return version.step.op == "update"
