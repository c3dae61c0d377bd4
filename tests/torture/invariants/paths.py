"""Invariants 3, 4 and 17, from the journal: every step was one that the design allows."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import Evidence, Violation
from tests.torture.journal import Step

UNSTARTED = frozenset({"scheduled", "blocked", "waiting", "paused"})
FINAL = frozenset({"done", "failed", "cancelled"})
MOVES = frozenset(
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
"""From which status to which a live row may go."""


def one_end(evidence: Evidence) -> list[Violation]:
    """3: each task is live or has ended once, and nothing happens to it after that."""
    found = []
    for task in evidence.tasks:
        if (task in evidence.live) == (task in evidence.ends):
            is_both = task in evidence.live
            found.append(
                Violation(3, "live and ended" if is_both else "neither live nor ended", task)
            )
    for task, steps in evidence.paths.items():
        ended: Step | None = None
        for step in steps:
            if ended is not None and step.xid != ended.xid:
                message = f"{told(step)} after it had ended {ended.status}"
                found.append(Violation(3, message, task, at=step.boot))
            if step.what == "end":
                if step.op != "insert" or ended is not None:
                    found.append(Violation(3, f"its end was changed: {told(step)}", task))
                ended = step
    return found


def legal_path(evidence: Evidence) -> list[Violation]:
    """4: the steps of each task are accepted by the automaton of a task's life."""
    return [
        Violation(4, message, task)
        for task, steps in evidence.paths.items()
        for message in _illegal(steps)
    ]


def leader(evidence: Evidence) -> list[Violation]:
    """17: terms rise, and no lease of a term comes after the next one has begun."""
    found = []
    term: int | None = None
    last: dict[int, Step] = {}
    for step in evidence.books.journal:
        if step.what == "term" and step.term is not None:
            if term is not None and step.term != term + 1:
                found.append(Violation(17, f"term {step.term} came after term {term}"))
            term = step.term
        elif step.what == "live" and step.task is not None:
            if is_lease(last.get(step.task), step) and step.term != term:
                found.append(
                    Violation(
                        17,
                        f"leased in term {step.term}, during term {term}",
                        step.task,
                        at=step.boot,
                    )
                )
            last[step.task] = step
    return found


def _illegal(steps: Sequence[Step]) -> Iterator[str]:
    before: Step | None = None
    for step in steps:
        if step.what != "live":
            continue
        if bool(step.is_paused) != (step.status == "paused") and step.status != "running":
            yield f"{told(step)} is {'' if step.is_paused else 'not '}marked as paused"
        if step.op == "insert":
            if before is not None or step.status not in UNSTARTED or step.attempt:
                yield f"began as {told(step)}"
        elif step.op == "delete":
            yield from _wrong_removal(step, steps)
        elif before is not None:
            yield from _wrong_move(before, step, steps)
        before = step


def _wrong_move(before: Step, step: Step, steps: Sequence[Step]) -> Iterator[str]:
    move = f"{told(before)} became {told(step)}"
    if (before.status, step.status) not in MOVES:
        yield move
    elif is_lease(before, step):
        if step.attempt != (before.attempt or 0) + 1 or before.status == "running":
            yield move
    elif step.attempt != before.attempt:
        yield move
    elif before.status == "running" and step.status == "running":
        if step.incarnation != before.incarnation or not _is_noted(before, step):
            yield move
    elif before.status == "running":
        if before.cancel_requested:
            yield f"{move} although it was to be cancelled"
        yield from _wrong_count(before, step, steps)


def _is_noted(before: Step, step: Step) -> bool:
    """Say whether a running task was told to stop, to pause, or that others wait for it.

    Or that it need not pause; but no more than that.
    """
    if step.cancel_requested:
        return True
    is_marked = bool(step.is_awaited) and not before.is_awaited
    is_marked = is_marked or bool(step.is_paused) != bool(before.is_paused)
    return is_marked and (step.failures, step.losses) == (before.failures, before.losses)


def _wrong_count(before: Step, step: Step, steps: Sequence[Step]) -> Iterator[str]:
    """An attempt has ended and the task goes on: what was recorded must add up."""
    ended = _beside(step, steps, "attempt")
    if len(ended) != 1 or key(ended[0]) != key(before):
        yield f"went from {told(before)} to {told(step)} without a record of the attempt"
        return
    failed = ended[0].outcome in ("failed", "capped", "overused")
    lost = ended[0].outcome == "lost"
    expected = ((before.failures or 0) + failed, (before.losses or 0) + lost)
    if (step.failures, step.losses) != expected:
        yield (
            f"after {told(ended[0])} it counts {step.failures} failures and {step.losses}"
            f" losses instead of {expected[0]} and {expected[1]}"
        )


def _wrong_removal(step: Step, steps: Sequence[Step]) -> Iterator[str]:
    ends, ended = _beside(step, steps, "end"), _beside(step, steps, "attempt")
    if len(ends) != 1 or ends[0].status not in FINAL:
        yield f"{told(step)} vanished without an end"
        return
    end = ends[0]
    if step.status != "running":
        if ended or end.status == "done":
            yield f"{told(step)} ended {end.status} without a lease"
    elif len(ended) != 1 or key(ended[0]) != key(step):
        yield f"{told(step)} ended {end.status} without a record of the attempt"
    elif step.cancel_requested and end.status != "cancelled":
        yield f"{told(step)} ended {end.status} although it was to be cancelled"
    elif end.status == "done" and ended[0].outcome != "succeeded":
        yield f"{told(step)} is done after an attempt that was {ended[0].outcome}"


def _beside(step: Step, steps: Sequence[Step], what: str) -> list[Step]:
    """Return the steps of a kind that were made in the same transaction."""
    return [one for one in steps if one.what == what and one.xid == step.xid]


def is_lease(before: Step | None, step: Step) -> bool:
    """Say whether a step gives a task to an incarnation, and not merely changes the row."""
    return (
        step.what == "live"
        and step.op != "delete"
        and step.token is not None
        and (before is None or before.token != step.token)
    )


def first_lease(steps: Sequence[Step]) -> Step | None:
    """Return the step in which a task was given to an incarnation for the first time."""
    before: Step | None = None
    for step in steps:
        if step.what != "live":
            continue
        if is_lease(before, step):
            return step
        before = step
    return None


def key(step: Step) -> tuple[int | None, int | None, int | None]:
    """Return what tells one attempt from all others, and who has it."""
    return step.attempt, step.token, step.incarnation


def told(step: Step) -> str:
    """Put a step in words."""
    match step.what:
        case "attempt":
            return f"attempt {step.attempt} (token {step.token}) was {step.outcome}"
        case "end":
            return f"{step.op} of the end {step.status}"
        case _:
            holder = "" if step.token is None else f", token {step.token}"
            return f"{step.status} (attempt {step.attempt}{holder})"
