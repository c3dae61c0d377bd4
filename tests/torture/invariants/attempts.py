"""Invariant 8: attempts are counted, and a task fails if and only if it must."""

from collections.abc import Iterator, Sequence

from tests.torture.database_dump import AttemptRow, EndRow, TaskRow
from tests.torture.evidence import Evidence, Violation

FAILURES = frozenset({"failed", "capped", "overused"})
UNPLACEABLE = frozenset({"no_node_can_fit", "no_node_has_label"})


def attempts(evidence: Evidence) -> list[Violation]:
    """8: attempts are numbered 1..k, the counters match them, and dead letters have a cause."""
    return [
        Violation(8, message, task.id)
        for task in evidence.dump.tasks
        for message in _violations(evidence, task)
    ]


def _violations(evidence: Evidence, task: TaskRow) -> Iterator[str]:
    rows = sorted(evidence.attempts.get(task.id, ()), key=lambda row: row.attempt)
    numbers = [row.attempt for row in rows]
    if numbers != list(range(1, len(rows) + 1)):
        yield f"its attempts are {numbers}"
    failures = sum(row.outcome in FAILURES for row in rows)
    losses = sum(row.outcome == "lost" for row in rows)
    if failures > task.max_attempts:
        yield f"has {failures} failures, and {task.max_attempts} are allowed"
    if losses > evidence.settings.max_losses:
        yield f"has {losses} losses, and {evidence.settings.max_losses} are allowed"
    row = evidence.ends.get(task.id) or evidence.live.get(task.id)
    if row is None:
        return
    counted = (row.attempt, row.failures, row.losses)
    is_running = not isinstance(row, EndRow) and row.status == "running"
    if counted != (len(rows) + is_running, failures, losses):
        yield (
            f"counts {counted[0]} attempts, {counted[1]} failures and {counted[2]} losses, "
            f"but there are {len(rows) + is_running}, {failures} and {losses}"
        )
    must_fail = _is_exhausted(evidence, task, rows, failures, losses)
    may_fail = must_fail or _is_lost_at_start(evidence, task, rows)
    yield from _end_violations(evidence, task, row.status, must_fail=must_fail, may_fail=may_fail)


def _is_exhausted(
    evidence: Evidence, task: TaskRow, rows: Sequence[AttemptRow], failures: int, losses: int
) -> bool:
    if not rows:
        return False
    last = rows[-1].outcome
    return (last in FAILURES and failures >= task.max_attempts) or (
        last == "lost" and (task.on_lost == "fail" or losses >= evidence.settings.max_losses)
    )


def _is_lost_at_start(evidence: Evidence, task: TaskRow, rows: Sequence[AttemptRow]) -> bool:
    """Return True if a task failed as `lost_at_start` after enough lost incarnations.

    Whether they had reported its start is unknown here, so such a failure is allowed, not required.
    """
    end = evidence.ends.get(task.id)
    lost = {row.incarnation_id for row in rows if row.outcome == "lost"}
    return (
        end is not None
        and end.reason == "lost_at_start"
        and rows[-1].outcome == "lost"
        and len(lost) >= evidence.settings.max_lost_starts
    )


def _end_violations(
    evidence: Evidence, task: TaskRow, status: str, *, must_fail: bool, may_fail: bool
) -> Iterator[str]:
    end = evidence.ends.get(task.id)
    has_failed = status == "failed"
    could_not_start = (
        has_failed and end is not None and end.outcome is None and end.reason in UNPLACEABLE
    )
    if has_failed and not (may_fail or could_not_start):
        yield f"failed without a cause ({'' if end is None else end.reason})"
    if must_fail and status not in ("failed", "cancelled"):
        yield f"is {status} although it had to fail"
    if (
        has_failed != (task.id in evidence.dead_letters)
        and task.id not in evidence.handled_dead_letters
    ):
        yield "is a dead letter" if not has_failed else "has failed and is no dead letter"
