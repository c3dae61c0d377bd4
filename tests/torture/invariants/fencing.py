"""Invariant 6, from the journal: only the current holder of an attempt can change it."""

from collections.abc import Iterator

from tests.torture.evidence import CLOCK_TOLERANCE, Evidence, Violation
from tests.torture.invariants.paths import attempt_key, describe, is_lease
from tests.torture.journal import Step
from tests.torture.ledger import Entry


def fence(evidence: Evidence) -> list[Violation]:
    """6: an outcome is accepted only from the current attempt of a task.

    No attempt or lease of a node is taken away while its holder may rely on it. Tokens rise with
    every attempt, so that external stores can reject writes of earlier attempts.
    """
    return [*_stale_outcomes(evidence), *_taken_too_early(evidence), *_non_rising_tokens(evidence)]


def _stale_outcomes(evidence: Evidence) -> Iterator[Violation]:
    for task, steps in evidence.steps_by_task.items():
        holder: Step | None = None
        for step in steps:
            if is_lease(holder, step):
                if holder is not None and (step.token or 0) <= (holder.token or 0):
                    message = f"token {step.token} came after token {holder.token}"
                    yield Violation(6, message, task, at=step.boot)
                holder = step
            elif step.what == "attempt" and (
                holder is None or attempt_key(step) != attempt_key(holder)
            ):
                message = f"{describe(step)} while {_describe_holder(holder)} was the holder"
                yield Violation(6, message, task, at=step.boot)


def _taken_too_early(evidence: Evidence) -> Iterator[Violation]:
    renewed: dict[int | None, Step] = {}
    ended: set[int | None] = set()
    for step in evidence.dump.journal:
        if step.what == "renewal" or (step.what == "incarnation" and step.status == "alive"):
            if step.incarnation in ended:
                yield _violation(step, f"incarnation {step.incarnation} was renewed after its end")
            renewed[step.incarnation] = step
        elif step.what == "incarnation":
            ended.add(step.incarnation)
            yield from _expired_too_early(evidence, step, renewed.get(step.incarnation))
        elif step.reason == "node_lost" and step.incarnation not in ended:
            yield Violation(
                6, f"{describe(step)} while its node was alive", step.task, at=step.boot
            )


def _non_rising_tokens(evidence: Evidence) -> Iterator[Violation]:
    """Compare the tokens in the ledger with those of earlier attempts of the task."""
    latest: dict[int, Entry] = {}
    for entry in evidence.entries:
        before = latest.setdefault(entry.task, entry)
        if entry.attempt > before.attempt:
            latest[entry.task] = entry
            if entry.token <= before.token:
                yield Violation(
                    6, f"got token {entry.token} after token {before.token}", entry.task
                )


def _expired_too_early(evidence: Evidence, end: Step, renewal: Step | None) -> Iterator[Violation]:
    """Compare the clock readings behind the renewal and the expiry."""
    if end.reason != "expired" or renewal is None:
        return
    if evidence.clock_stepped(renewal.computed_at, end.boot):
        return
    lease_seconds = end.computed_at - renewal.computed_at
    if lease_seconds < evidence.settings.ttl - CLOCK_TOLERANCE:
        yield _violation(
            end, f"incarnation {end.incarnation} expired {lease_seconds:.2f} s after it was renewed"
        )


def _violation(step: Step, message: str) -> Violation:
    return Violation(6, message, incarnation=step.incarnation, at=step.boot)


def _describe_holder(holder: Step | None) -> str:
    return "nobody" if holder is None else f"attempt {holder.attempt} (token {holder.token})"
