"""Invariants 5, 7 and 15, from the ledger: actual executions never overlap or exceed their cap."""

from collections.abc import Iterator

from tests.torture.database_dump import AttemptRow
from tests.torture.evidence import BLUR, Evidence, Violation
from tests.torture.ledger import Entry

THAW = 1.0
"""Seconds that a payload may run on after the thaw of its whole node, before it is killed."""
SLACK = 1.0


def no_invented_success(evidence: Evidence) -> list[Violation]:
    """5: an attempt that succeeded wrote its start and its end, before it was said to succeed."""
    return [
        Violation(5, message, row.task_id)
        for row in evidence.books.attempts
        if row.outcome == "succeeded" and evidence.writes_ledger(row.task_id)
        for message in _untold(evidence, row)
    ]


def no_overlap(evidence: Evidence) -> list[Violation]:
    """7: nothing of an attempt is written once a later one has begun, and none begins twice.

    The ledger is one file, so its order is what happened. A frozen attempt writes nothing, so
    its frozen time is not counted.
    """
    found = []
    newest: dict[int, Entry] = {}
    started: set[tuple[int, int]] = set()
    late: set[tuple[int, int]] = set()
    for entry in evidence.entries:
        latest = newest.setdefault(entry.task, entry)
        which = entry.task, entry.token
        if entry.token < latest.token and which not in late and not _was_frozen(evidence, entry):
            late.add(which)
            found.append(
                Violation(
                    7, f"token {entry.token} wrote after token {latest.token} began", entry.task
                )
            )
        if entry.token > latest.token:
            newest[entry.task] = entry
        if entry.what == "start":
            if which in started:
                found.append(Violation(7, f"token {entry.token} began twice", entry.task))
            started.add(which)
    return found


def cap(evidence: Evidence) -> list[Violation]:
    """15: nothing runs longer than its cap and the grace, and what ran too long is called so."""
    found = []
    for (task, attempt), entries in evidence.written.items():
        if task not in evidence.tasks:
            continue
        first, last = entries[0], entries[-1]
        stood_still = evidence.trouble_between(first.at, last.at, host=evidence.node_of(first))
        ran = last.at - first.at - stood_still
        limit = evidence.tasks[task].execution_cap + evidence.rules.grace + SLACK
        if ran > limit:
            found.append(Violation(15, f"attempt {attempt} ran {ran:.1f} s of {limit:.1f} s", task))
    for row in evidence.books.attempts:
        found += _misnamed(evidence, row)
    return found


def _untold(evidence: Evidence, row: AttemptRow) -> Iterator[str]:
    entries = evidence.written.get((row.task_id, row.attempt), ())
    ended = [one for one in entries if one.what == "end"]
    if not ended or not any(one.what == "start" for one in entries):
        yield f"attempt {row.attempt} succeeded without a trace"
        return
    for step in evidence.paths.get(row.task_id, ()):
        if step.what == "attempt" and step.token == row.token and step.boot < ended[0].at - BLUR:
            yield f"attempt {row.attempt} was said to have succeeded before it ended"


def _was_frozen(evidence: Evidence, entry: Entry) -> bool:
    """Say whether an entry was written when the whole node had just been thawed."""
    return any(
        one.kind == "node_frozen"
        and one.host == evidence.node_of(entry)
        and one.began - BLUR <= entry.at <= one.healed + THAW + BLUR
        for one in evidence.troubles
    )


def _misnamed(evidence: Evidence, row: AttemptRow) -> Iterator[Violation]:
    task = evidence.tasks.get(row.task_id)
    if task is None or row.wall_seconds is None:
        return
    ran = row.wall_seconds
    if ran > task.execution_cap + SLACK and row.outcome in ("succeeded", "failed"):
        stood_still = _stood_still(evidence, row)
        if ran - stood_still > task.execution_cap + SLACK:
            yield Violation(
                15, f"attempt {row.attempt} is {row.outcome} after {ran:.1f} s", row.task_id
            )
    # The backstop of the servers goes by PostgreSQL's clock, and believes it.
    is_early = ran < task.execution_cap - BLUR
    if row.outcome == "capped" and is_early and not evidence.clock_stepped(*_span(evidence, row)):
        yield Violation(15, f"attempt {row.attempt} was capped after only {ran:.1f} s", row.task_id)


def _stood_still(evidence: Evidence, row: AttemptRow) -> float:
    """Return for how long the node of an attempt was in trouble while it had the lease."""
    return evidence.trouble_between(*_span(evidence, row), host=evidence.nodes.get(row.node_id, ""))


def _span(evidence: Evidence, row: AttemptRow) -> tuple[float, float]:
    """Return from when to when an attempt had its lease."""
    steps = evidence.paths.get(row.task_id, ())
    held = [step.boot for step in steps if step.token == row.token]
    return (held[0], held[-1]) if held else (0.0, 0.0)
