"""Part of invariant 9: what one fire time submits beside what an earlier one has submitted."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import Evidence
from tests.torture.invariants.paths import is_lease
from tests.torture.journal import Step
from tests.torture.lives import Life, fire_at


def overlaps(evidence: Evidence, life: Life) -> Iterator[str]:
    """Yield what a schedule's `overlap` does not allow."""
    yield from _beside(evidence, life)
    yield from _at_once(evidence, life)


def _beside(evidence: Evidence, life: Life) -> Iterator[str]:
    """Look, when a fire time was claimed, at the tasks of earlier ones that had not ended."""
    earlier: list[int] = []
    for claim in life.claims:
        row, version = life.became.get(fire_at(claim)), life.version_at(claim.seq)
        if row is None or row.task_id is None or version is None:
            continue
        overlap = version.row["overlap"]
        for task in earlier:
            state = _state(evidence.paths.get(task, ()), claim)
            if state is None:
                continue
            if overlap == "skip":
                yield f"{row.fire_at} has a task, and the task {task} had not ended"
            if overlap == "cancel_other" and not state.cancel_requested:
                yield f"{row.fire_at} has a task, and the task {task} was not cancelled for it"
        earlier.append(row.task_id)


def _state(steps: Sequence[Step], claim: Step) -> Step | None:
    """Return how a task was left by what was done up to a step, and by its transaction."""
    state = None
    for step in steps:
        if step.what == "live" and (step.seq < claim.seq or step.xid == claim.xid):
            state = None if step.op == "delete" else step
    return state


def _at_once(evidence: Evidence, life: Life) -> Iterator[str]:
    """Find two tasks that had a lease at a time, of a schedule that lets them queue."""
    queued = {
        row.task_id
        for claim in life.claims
        if (row := life.became.get(fire_at(claim))) is not None
        and (version := life.version_at(claim.seq)) is not None
        and version.row["overlap"] == "queue"
    }
    steps = [
        step
        for task in queued
        if task is not None
        for step in evidence.paths.get(task, ())
        if step.what == "live"
    ]
    before: dict[int, Step] = {}
    for step in sorted(steps, key=lambda one: one.seq):
        task = step.task or 0
        if is_lease(before.get(task), step):
            for other, state in before.items():
                if other != task and state.token is not None:
                    yield f"the task {task} was leased while the task {other} ran"
        before[task] = step
        if step.op == "delete":
            del before[task]
