"""Invariants 3, 4 and 17, from the journal: only legal transitions happened."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import Evidence, Violation
from tests.torture.journal import Step

UNSTARTED = frozenset({"scheduled", "blocked", "waiting", "paused"})
FINAL = frozenset({"done", "failed", "cancelled"})
TRANSITIONS = frozenset(
    {
        ("blocked", "blocked"), ("blocked", "waiting"), ("blocked", "scheduled"),
        ("scheduled", "waiting"), ("scheduled", "scheduled"),
        ("waiting", "scheduled"), ("waiting", "waiting"), ("waiting", "running"),
        ("running", "running"), ("running", "waiting"), ("running", "scheduled"),
        ("blocked", "paused"), ("scheduled", "paused"), ("waiting", "paused"),
        ("running", "paused"), ("paused", "paused"),
        ("paused", "blocked"), ("paused", "scheduled"), ("paused", "waiting"),
    }
)  # fmt: skip
"""The legal transitions of the status of a live row."""


def one_end(evidence: Evidence) -> list[Violation]:
    """3: each task is live or has ended once, and does not change after its end."""
    violations = []
    for task in evidence.tasks:
        if (task in evidence.live) == (task in evidence.ends):
            is_both = task in evidence.live
            violations.append(
                Violation(3, "live and ended" if is_both else "neither live nor ended", task)
            )
    for task, steps in evidence.steps_by_task.items():
        ended: Step | None = None
        for step in steps:
            if ended is not None and step.xid != ended.xid:
                message = f"{describe(step)} after it had ended {ended.status}"
                violations.append(Violation(3, message, task, at=step.boot))
            if step.what == "end":
                if step.op != "insert" or ended is not None:
                    violations.append(Violation(3, f"its end was changed: {describe(step)}", task))
                ended = step
    return violations


def legal_path(evidence: Evidence) -> list[Violation]:
    """4: the steps of each task follow the state machine of tasks."""
    return [
        Violation(4, message, task)
        for task, steps in evidence.steps_by_task.items()
        for message in _illegal_steps(steps)
    ]


def leader(evidence: Evidence) -> list[Violation]:
    """17: terms rise, and no lease of a term is made after the next term has begun."""
    violations = []
    term: int | None = None
    last: dict[int, Step] = {}
    for step in evidence.dump.journal:
        if step.what == "term" and step.term is not None:
            if term is not None and step.term != term + 1:
                violations.append(Violation(17, f"term {step.term} came after term {term}"))
            term = step.term
        elif step.what == "live" and step.task is not None:
            if is_lease(last.get(step.task), step) and step.term != term:
                violations.append(
                    Violation(
                        17,
                        f"leased in term {step.term}, during term {term}",
                        step.task,
                        at=step.boot,
                    )
                )
            last[step.task] = step
    return violations


def _illegal_steps(steps: Sequence[Step]) -> Iterator[str]:
    before: Step | None = None
    for step in steps:
        if step.what != "live":
            continue
        if bool(step.is_paused) != (step.status == "paused") and step.status != "running":
            yield f"{describe(step)} is {'' if step.is_paused else 'not '}marked as paused"
        if step.op == "insert":
            if before is not None or step.status not in UNSTARTED or step.attempt:
                yield f"began as {describe(step)}"
        elif step.op == "delete":
            yield from _illegal_removal(step, steps)
        elif before is not None:
            yield from _illegal_transition(before, step, steps)
        before = step


def _illegal_transition(before: Step, step: Step, steps: Sequence[Step]) -> Iterator[str]:
    transition = f"{describe(before)} became {describe(step)}"
    if (before.status, step.status) not in TRANSITIONS:
        yield transition
    elif is_lease(before, step):
        if step.attempt != (before.attempt or 0) + 1 or before.status == "running":
            yield transition
    elif step.attempt != before.attempt:
        yield transition
    elif before.status == "running" and step.status == "running":
        if step.incarnation != before.incarnation or not _is_mark(before, step):
            yield transition
    elif before.status == "running":
        if before.cancel_requested:
            yield f"{transition} although it was to be cancelled"
        yield from _wrong_counters(before, step, steps)


def _is_mark(before: Step, step: Step) -> bool:
    """Return True if a step only marks a running task: cancel, pause, resume, or dependants."""
    if step.cancel_requested:
        return True
    is_marked = bool(step.is_awaited) and not before.is_awaited
    is_marked = is_marked or bool(step.is_paused) != bool(before.is_paused)
    return is_marked and (step.failures, step.losses) == (before.failures, before.losses)


def _wrong_counters(before: Step, step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """Check the counters of a task that continues after the end of an attempt."""
    ended = _in_same_transaction(step, steps, "attempt")
    if len(ended) != 1 or attempt_key(ended[0]) != attempt_key(before):
        yield f"went from {describe(before)} to {describe(step)} without a record of the attempt"
        return
    failed = ended[0].outcome in ("failed", "capped", "overused")
    lost = ended[0].outcome == "lost"
    expected = ((before.failures or 0) + failed, (before.losses or 0) + lost)
    if (step.failures, step.losses) != expected:
        yield (
            f"after {describe(ended[0])} it counts {step.failures} failures and {step.losses}"
            f" losses instead of {expected[0]} and {expected[1]}"
        )


def _illegal_removal(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    ends, ended = (
        _in_same_transaction(step, steps, "end"),
        _in_same_transaction(step, steps, "attempt"),
    )
    if len(ends) != 1 or ends[0].status not in FINAL:
        yield f"{describe(step)} vanished without an end"
        return
    end = ends[0]
    if step.status != "running":
        if ended or end.status == "done":
            yield f"{describe(step)} ended {end.status} without a lease"
    elif len(ended) != 1 or attempt_key(ended[0]) != attempt_key(step):
        yield f"{describe(step)} ended {end.status} without a record of the attempt"
    elif step.cancel_requested and end.status != "cancelled":
        yield f"{describe(step)} ended {end.status} although it was to be cancelled"
    elif end.status == "done" and ended[0].outcome != "succeeded":
        yield f"{describe(step)} is done after an attempt that was {ended[0].outcome}"


def _in_same_transaction(step: Step, steps: Sequence[Step], what: str) -> list[Step]:
    """Return the steps of a kind in the same transaction."""
    return [other for other in steps if other.what == what and other.xid == step.xid]


def is_lease(before: Step | None, step: Step) -> bool:
    """Return True if a step leases a task, rather than merely changing its row."""
    return (
        step.what == "live"
        and step.op != "delete"
        and step.token is not None
        and (before is None or before.token != step.token)
    )


def first_lease(steps: Sequence[Step]) -> Step | None:
    """Return the first lease of a task."""
    before: Step | None = None
    for step in steps:
        if step.what != "live":
            continue
        if is_lease(before, step):
            return step
        before = step
    return None


def attempt_key(step: Step) -> tuple[int | None, int | None, int | None]:
    """Return the identity of an attempt and its holder."""
    return step.attempt, step.token, step.incarnation


def describe(step: Step) -> str:
    """Return a description of a step."""
    match step.what:
        case "attempt":
            return f"attempt {step.attempt} (token {step.token}) was {step.outcome}"
        case "end":
            return f"{step.op} of the end {step.status}"
        case _:
            holder = "" if step.token is None else f", token {step.token}"
            return f"{step.status} (attempt {step.attempt}{holder})"
