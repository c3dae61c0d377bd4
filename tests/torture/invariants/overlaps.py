"""Part of invariant 9: a schedule's overlap policy is respected."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import Evidence
from tests.torture.invariants.paths import first_lease
from tests.torture.journal import Step
from tests.torture.schedule_history import ScheduleHistory, fire_at

LASTS = 0.5
"""Seconds from a claim to the commit of its transaction, if nothing is wrong."""


def overlaps(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    """Yield what a schedule's `overlap` does not allow."""
    yield from _beside(evidence, life)
    yield from _out_of_turn(evidence, life)


def _beside(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    """Look, when a fire time was claimed, at the tasks of earlier ones that had not ended."""
    earlier: list[int] = []
    for claim in life.claims:
        row, version = life.became.get(fire_at(claim)), life.version_at(claim.seq)
        if row is None or row.led_to is None or version is None:
            continue
        overlap = version.row["overlap"]
        for task in earlier:
            state = _state(evidence.paths.get(task, ()), claim)
            if state is None:
                continue
            if overlap == "skip":
                yield f"{row.fire_at} became {row.led_to}, and the task {task} had not ended"
            if overlap == "cancel_other" and not _is_spared(evidence, claim, state):
                yield f"{row.fire_at} became {row.led_to}, and {task} was not cancelled for it"
        earlier += evidence.tasks_of(row)


def _is_spared(evidence: Evidence, claim: Step, state: Step) -> bool:
    """Say whether a task was cancelled with a claim, or ended before it could be.

    What is to be cancelled is locked last in the transaction of the claim, when it may have
    ended by itself.
    """
    if state.cancel_requested:
        return True
    steps = evidence.paths.get(state.task or 0, ())
    ended = next((step for step in steps if (step.what, step.op) == ("end", "insert")), None)
    if ended is None:
        return False
    after = ended.boot - claim.boot
    return after <= LASTS + evidence.trouble_between(claim.boot, ended.boot)


def _state(steps: Sequence[Step], claim: Step) -> Step | None:
    """Return how a task was left by what was done up to a step, and by its transaction."""
    state = None
    for step in steps:
        if step.what == "live" and (step.seq < claim.seq or step.xid == claim.xid):
            state = None if step.op == "delete" else step
    return state


def _out_of_turn(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    """Find what began before all ahead of it had ended, of a schedule that lets them queue."""
    ahead: list[int] = []
    for claim in life.claims:
        row, version = life.became.get(fire_at(claim)), life.version_at(claim.seq)
        if row is None or version is None:
            continue
        mine = evidence.tasks_of(row)
        if version.row["overlap"] == "queue":
            for task in mine:
                first = first_lease(evidence.paths.get(task, ()))
                if first is not None:
                    yield from (
                        f"the task {task} was leased before the task {other} had ended"
                        for other in ahead
                        if _state(evidence.paths.get(other, ()), first) is not None
                    )
        ahead += mine
