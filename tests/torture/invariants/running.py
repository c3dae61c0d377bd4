"""Invariants 5, 7 and 15, from the ledger: actual executions never overlap or exceed their cap."""

from collections.abc import Iterator

from tests.torture.database_dump import AttemptRow
from tests.torture.evidence import CLOCK_TOLERANCE, Evidence, Violation
from tests.torture.ledger import Entry

THAW_SECONDS = 1.0
"""Seconds that a payload may continue after its node was thawed, before it is killed."""
SLACK_SECONDS = 1.0


def no_invented_success(evidence: Evidence) -> list[Violation]:
    """5: a succeeded attempt wrote its start and its end before the success was recorded."""
    return [
        Violation(5, message, row.task_id)
        for row in evidence.dump.attempts
        if row.outcome == "succeeded" and evidence.writes_ledger(row.task_id)
        for message in _unproven_success(evidence, row)
    ]


def no_overlap(evidence: Evidence) -> list[Violation]:
    """7: no attempt writes after a later one has started, and none starts twice.

    The ledger is one file, so its order is the order of events.
    """
    violations = []
    newest: dict[int, Entry] = {}
    started: set[tuple[int, int]] = set()
    reported: set[tuple[int, int]] = set()
    for entry in evidence.entries:
        latest = newest.setdefault(entry.task, entry)
        execution = entry.task, entry.token
        if (
            entry.token < latest.token
            and execution not in reported
            and not _was_frozen(evidence, entry)
        ):
            reported.add(execution)
            violations.append(
                Violation(
                    7, f"token {entry.token} wrote after token {latest.token} started", entry.task
                )
            )
        if entry.token > latest.token:
            newest[entry.task] = entry
        if entry.what == "start":
            if execution in started:
                violations.append(Violation(7, f"token {entry.token} started twice", entry.task))
            started.add(execution)
    return violations


def cap(evidence: Evidence) -> list[Violation]:
    """15: no attempt runs longer than its cap and the grace, and outcomes match the durations."""
    violations = []
    for (task, attempt), entries in evidence.entries_by_attempt.items():
        if task not in evidence.tasks:
            continue
        first, last = entries[0], entries[-1]
        fault_seconds = evidence.fault_seconds(first.at, last.at, host=evidence.node_of(first))
        ran = last.at - first.at - fault_seconds
        limit = evidence.tasks[task].execution_cap + evidence.settings.grace + SLACK_SECONDS
        if ran > limit:
            violations.append(
                Violation(15, f"attempt {attempt} ran {ran:.1f} s of {limit:.1f} s", task)
            )
    for row in evidence.dump.attempts:
        violations += _wrong_outcome(evidence, row)
    return violations


def _unproven_success(evidence: Evidence, row: AttemptRow) -> Iterator[str]:
    entries = evidence.entries_by_attempt.get((row.task_id, row.attempt), ())
    ended = [entry for entry in entries if entry.what == "end"]
    if not ended or not any(entry.what == "start" for entry in entries):
        yield f"attempt {row.attempt} succeeded without entries in the ledger"
        return
    for step in evidence.steps_by_task.get(row.task_id, ()):
        if (
            step.what == "attempt"
            and step.token == row.token
            and step.boot < ended[0].at - CLOCK_TOLERANCE
        ):
            yield f"attempt {row.attempt} was recorded as succeeded before it ended"


def _was_frozen(evidence: Evidence, entry: Entry) -> bool:
    """Return True if an entry was written while, or right after, its node was frozen."""
    return any(
        fault.kind == "node_frozen"
        and fault.host == evidence.node_of(entry)
        and fault.began - CLOCK_TOLERANCE <= entry.at
        and entry.at <= fault.healed + THAW_SECONDS + CLOCK_TOLERANCE
        for fault in evidence.faults
    )


def _wrong_outcome(evidence: Evidence, row: AttemptRow) -> Iterator[Violation]:
    task = evidence.tasks.get(row.task_id)
    if task is None or row.wall_seconds is None:
        return
    ran = row.wall_seconds
    if ran > task.execution_cap + SLACK_SECONDS and row.outcome in ("succeeded", "failed"):
        fault_seconds = _seconds_with_fault(evidence, row)
        if ran - fault_seconds > task.execution_cap + SLACK_SECONDS:
            yield Violation(
                15, f"attempt {row.attempt} is {row.outcome} after {ran:.1f} s", row.task_id
            )
    # The kill backstop of the servers relies on PostgreSQL's clock.
    is_early = ran < task.execution_cap - CLOCK_TOLERANCE
    if (
        row.outcome == "capped"
        and is_early
        and not evidence.clock_stepped(*_lease_interval(evidence, row))
    ):
        yield Violation(15, f"attempt {row.attempt} was capped after only {ran:.1f} s", row.task_id)


def _seconds_with_fault(evidence: Evidence, row: AttemptRow) -> float:
    """Return for how long the node of an attempt had a fault during its lease."""
    return evidence.fault_seconds(
        *_lease_interval(evidence, row), host=evidence.nodes.get(row.node_id, "")
    )


def _lease_interval(evidence: Evidence, row: AttemptRow) -> tuple[float, float]:
    """Return the beginning and the end of the lease of an attempt."""
    steps = evidence.steps_by_task.get(row.task_id, ())
    held = [step.boot for step in steps if step.token == row.token]
    return (held[0], held[-1]) if held else (0.0, 0.0)
