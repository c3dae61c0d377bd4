"""Invariant 6, from the journal: only the current holder of an attempt can change it."""

from collections.abc import Iterator

from tests.torture.evidence import BLUR, Evidence, Violation
from tests.torture.invariants.paths import is_lease, key, told
from tests.torture.journal import Step
from tests.torture.ledger import Entry


def fence(evidence: Evidence) -> list[Violation]:
    """6: nothing is accepted on the account of an attempt but while it is the task's own.

    And nobody loses an attempt, or the lease of a node, who may still rely on it. A store that
    refuses lower tokens after higher ones takes what later attempts write, and nothing of earlier.
    """
    return [*_stale(evidence), *_robbed(evidence), *_not_rising(evidence)]


def _stale(evidence: Evidence) -> Iterator[Violation]:
    for task, steps in evidence.paths.items():
        holder: Step | None = None
        for step in steps:
            if is_lease(holder, step):
                if holder is not None and (step.token or 0) <= (holder.token or 0):
                    message = f"token {step.token} came after token {holder.token}"
                    yield Violation(6, message, task, at=step.boot)
                holder = step
            elif step.what == "attempt" and (holder is None or key(step) != key(holder)):
                message = f"{told(step)} while {_holds(holder)} was the holder"
                yield Violation(6, message, task, at=step.boot)


def _robbed(evidence: Evidence) -> Iterator[Violation]:
    renewed: dict[int | None, Step] = {}
    ended: set[int | None] = set()
    for step in evidence.books.journal:
        if step.what == "renewal" or (step.what == "incarnation" and step.status == "alive"):
            if step.incarnation in ended:
                yield _about(step, f"incarnation {step.incarnation} was renewed after its end")
            renewed[step.incarnation] = step
        elif step.what == "incarnation":
            ended.add(step.incarnation)
            yield from _too_early(evidence, step, renewed.get(step.incarnation))
        elif step.reason == "node_lost" and step.incarnation not in ended:
            yield Violation(6, f"{told(step)} while its node was alive", step.task, at=step.boot)


def _not_rising(evidence: Evidence) -> Iterator[Violation]:
    """Compare the tokens that a task was shown with those of its earlier attempts."""
    latest: dict[int, Entry] = {}
    for entry in evidence.entries:
        before = latest.setdefault(entry.task, entry)
        if entry.attempt > before.attempt:
            latest[entry.task] = entry
            if entry.token <= before.token:
                yield Violation(
                    6, f"was shown token {entry.token} after token {before.token}", entry.task
                )


def _too_early(evidence: Evidence, end: Step, renewal: Step | None) -> Iterator[Violation]:
    """Compare the times that the renewal and the expiry were computed from."""
    if end.reason != "expired" or renewal is None:
        return
    if evidence.clock_stepped(renewal.computed_at, end.boot):
        return
    lasted = end.computed_at - renewal.computed_at
    if lasted < evidence.rules.ttl - BLUR:
        yield _about(
            end, f"incarnation {end.incarnation} expired {lasted:.2f} s after it was renewed"
        )


def _about(step: Step, message: str) -> Violation:
    return Violation(6, message, incarnation=step.incarnation, at=step.boot)


def _holds(holder: Step | None) -> str:
    return "nobody" if holder is None else f"attempt {holder.attempt} (token {holder.token})"
