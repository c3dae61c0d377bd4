"""Invariant 9: each fire time of a schedule has one task or graph, or a reason why it has none.

The journal tells what a schedule was when; from that, and from a rule that knows nothing of
Duly's code, follows which fire times it had. What a schedule had not come to when it was
removed, or when it was paused for good, nobody asks for.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from tests.torture.evidence import CONVERGED, Evidence, Violation
from tests.torture.invariants import overlaps, whole_graphs
from tests.torture.schedule_history import MOMENT, ScheduleHistory, Version, fire_at, lives

MARK = "of schedule "
"""What the names of tasks begin with that schedules submit in a run."""
LATE = 5.0
"""Seconds after its fire time in which a task is submitted, if nothing is wrong."""
BECAUSE = {
    "too_late": ("misfire", ("skip",)),
    "made_up_for": ("misfire", ("once",)),
    "too_many_missed": ("misfire", ("all",)),
    "overlap": ("overlap", ("skip", "cancel_other")),
}
"""Of which schedules these reasons may be told; the others may be told of any."""


def recurrence(evidence: Evidence) -> list[Violation]:
    """9: no fire time is left out, none is seen to twice, half or late, and none is made up."""
    found = [
        Violation(9, f"schedule {life.schedule}: {message}", schedule=life.schedule)
        for life in lives(evidence)
        for check in (_left_out, _made_up, _reasons, _late, whole_graphs.wholes, overlaps.overlaps)
        for message in check(evidence, life)
    ]
    return [*found, *_twice(evidence), *_unheard(evidence)]


def _left_out(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    for at in life.due():
        if not life.is_seen_to(at):
            yield f"{at} came, and nothing says what became of it"
    row = life.left
    is_late = row is not None and not row.paused and row.due_ago > CONVERGED
    if evidence.phase == "quiet" and is_late and row is not None:
        yield f"it is due since {row.next_run_at}, and nobody sees to it"


def _made_up(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    """Compare each fire time that was seen to with what the schedule was at that step."""
    for claim in life.claims:
        at = fire_at(claim)
        version, row = life.version_at(claim.seq), life.became.get(at)
        if version is None:
            yield f"{at} was seen to when there was no such schedule"
        elif not version.has(at):
            yield f"{at} is none of its fire times"
        elif version.is_paused and row is not None and row.led_to is not None:
            yield f"{at} became {row.led_to}, and it was paused"
        if row is not None and row.task_id is not None and row.task_id not in evidence.tasks:
            yield f"the task {row.task_id} of {at} does not exist"


def _reasons(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    for claim in life.claims:
        row, version = life.became.get(fire_at(claim)), life.version_at(claim.seq)
        if row is None or version is None or row.led_to is not None:
            continue
        field, allowed = BECAUSE.get(row.reason or "", ("", ()))
        if row.reason is None or (field and version.row[field] not in allowed):
            yield f"{row.fire_at} became nothing because of {row.reason}, which cannot be"
        if row.reason == "paused" and not version.is_paused:
            yield f"{row.fire_at} became nothing because of a pause, and there was none"
        if row.last_at is not None and row.times != _number(version, row.fire_at, row.last_at):
            yield f"from {row.fire_at} to {row.last_at} there are not {row.times} fire times"


def _number(version: Version, first: datetime, last: datetime) -> int:
    return len(version.times(first - MOMENT, last))


def _late(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    """Compare the time at which a task was made with its fire time."""
    for claim in life.claims:
        at = fire_at(claim)
        row = life.became.get(at)
        if row is None or row.led_to is None:
            continue
        recorded = datetime.fromisoformat((claim.row or {})["recorded_at"])
        late = (recorded - at).total_seconds()
        since = claim.computed_at - max(late, 0.0)
        if evidence.clock_stepped(since, claim.boot):
            continue
        if late < 0:
            yield f"{row.led_to} of {at} was submitted {-late:.2f} s before"
        if late > LATE + evidence.trouble_between(since, claim.boot):
            yield f"{row.led_to} of {at} was submitted {late:.1f} s late"


def _twice(evidence: Evidence) -> Iterator[Violation]:
    """Find two of one fire time: by what is recorded, and by names alone.

    All tasks of a graph have names of their own, and may start at the same time.
    """
    recorded = Counter((row.schedule_id, row.fire_at) for row in evidence.books.occurrences)
    for (schedule, at), count in recorded.items():
        if count > 1:
            message = f"schedule {schedule}: {at} was seen to {count} times"
            yield Violation(9, message, schedule=schedule)
    stored = Counter(
        (row.name, row.run_at)
        for row in evidence.books.tasks
        if row.name is not None and row.name.startswith(MARK) and row.replay_of is None
    )
    for (name, run_at), count in stored.items():
        if count > 1:
            yield Violation(9, f"{count} tasks {name!r} were to run at {run_at}")
    claimed = Counter(row.graph_id for row in evidence.books.occurrences)
    for graph, count in claimed.items():
        if graph is not None and count > 1:
            yield Violation(9, f"the graph {graph} belongs to {count} fire times")


def _unheard(evidence: Evidence) -> Iterator[Violation]:
    """Find what a client was told was done to a schedule, and was not."""
    known = {life.schedule: life for life in lives(evidence)}
    for call in evidence.calls:
        if call.outcome != "ok" or call.result is None or not call.op.endswith(" schedule"):
            continue
        schedule = int(call.result["schedule"])
        life = known.get(schedule)
        if life is None or not any(_is_it(call.op, one) for one in life.versions):
            message = f"schedule {schedule}: {call.op} was acknowledged, and was not done"
            yield Violation(9, message, schedule=schedule, at=call.returned)


def _is_it(op: str, version: Version) -> bool:
    match op:
        case "create schedule":
            return version.step.op == "insert"
        case "remove schedule":
            return version.step.op == "delete"
        case "pause schedule":
            return version.step.op == "update" and version.is_paused
        case "resume schedule":
            return not version.is_paused  # One that was not paused stays as it is.
        case _:
            return version.step.op == "update"
