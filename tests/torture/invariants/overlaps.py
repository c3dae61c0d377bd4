"""Part of invariant 9: a schedule's overlap policy is respected."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import Evidence
from tests.torture.invariants.paths import first_lease
from tests.torture.journal import Step
from tests.torture.schedule_history import ScheduleHistory, fire_at

MAX_TRANSACTION_SECONDS = 0.5
"""Seconds from a claim to the commit of its transaction, without faults."""


def overlaps(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    """Yield violations of the overlap policy of a schedule."""
    yield from _concurrent(evidence, schedule)
    yield from _out_of_order(evidence, schedule)


def _concurrent(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    """Check, for each claim, the tasks of earlier occurrences that had not ended."""
    earlier: list[int] = []
    for claim in schedule.claims:
        row, version = (
            schedule.occurrence_by_fire_time.get(fire_at(claim)),
            schedule.version_at(claim.seq),
        )
        if row is None or row.result_text is None or version is None:
            continue
        overlap = version.row["overlap"]
        for task in earlier:
            state = _state(evidence.steps_by_task.get(task, ()), claim)
            if state is None:
                continue
            if overlap == "skip":
                yield f"{row.fire_at} became {row.result_text}, and the task {task} had not ended"
            if overlap == "cancel_other" and not _is_cancelled_or_ended(evidence, claim, state):
                yield f"{row.fire_at} became {row.result_text}, and {task} was not cancelled for it"
        earlier += evidence.tasks_of(row)


def _is_cancelled_or_ended(evidence: Evidence, claim: Step, state: Step) -> bool:
    """Return True if a task was cancelled with a claim, or ended before it could be.

    Tasks to be cancelled are locked at the end of the transaction of the claim, when they may have
    ended by themselves.
    """
    if state.cancel_requested:
        return True
    steps = evidence.steps_by_task.get(state.task or 0, ())
    ended = next((step for step in steps if (step.what, step.op) == ("end", "insert")), None)
    if ended is None:
        return False
    after = ended.boot - claim.boot
    return after <= MAX_TRANSACTION_SECONDS + evidence.fault_seconds(claim.boot, ended.boot)


def _state(steps: Sequence[Step], claim: Step) -> Step | None:
    """Return the state of a task after a claim and its transaction; None if it has ended."""
    state = None
    for step in steps:
        if step.what == "live" and (step.seq < claim.seq or step.xid == claim.xid):
            state = None if step.op == "delete" else step
    return state


def _out_of_order(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    """Find tasks that started before all occurrences ahead of them in the queue had ended."""
    ahead: list[int] = []
    for claim in schedule.claims:
        row, version = (
            schedule.occurrence_by_fire_time.get(fire_at(claim)),
            schedule.version_at(claim.seq),
        )
        if row is None or version is None:
            continue
        tasks = evidence.tasks_of(row)
        if version.row["overlap"] == "queue":
            for task in tasks:
                first = first_lease(evidence.steps_by_task.get(task, ()))
                if first is not None:
                    yield from (
                        f"the task {task} was leased before the task {other} had ended"
                        for other in ahead
                        if _state(evidence.steps_by_task.get(other, ()), first) is not None
                    )
        ahead += tasks
