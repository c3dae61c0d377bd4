"""Invariant 23: no task starts between the acknowledgement of a pause and a resume.

A pause of a graph is applied in batches, so nothing is required before its acknowledgement, nor
after a resume that may have had an effect. In a run, a task is paused either by itself or with its
graph, never both.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from duly.errors import Conflict
from tests.torture.evidence import CLOCK_TOLERANCE, Evidence, Violation
from tests.torture.history import Call
from tests.torture.invariants.paths import is_lease
from tests.torture.journal import Step

CONTRARY = {
    "pause graph": "resume graph",
    "resume graph": "pause graph",
    "pause": "resume",
    "resume": "pause",
}
NEVER = float("inf")


def pause(evidence: Evidence) -> list[Violation]:
    """23: after an acknowledged pause all tasks are paused, and none starts until a resume."""
    calls: defaultdict[tuple[int, ...], list[Call]] = defaultdict(list)
    for call in evidence.calls:
        if call.op in CONTRARY:
            calls[_tasks_of(evidence, call)].append(call)
    return [
        Violation(23, message, task, at=call.returned)
        for tasks, calls_on_tasks in calls.items()
        for call in calls_on_tasks
        if call.outcome == "ok" and call.returned is not None
        for task in tasks
        for message in _violations(
            evidence.steps_by_task.get(task, ()), call, _until(call, calls_on_tasks)
        )
    ]


def _tasks_of(evidence: Evidence, call: Call) -> tuple[int, ...]:
    """Return the tasks that a call concerns."""
    if "task" in call.args:
        return (int(call.args["task"]),)
    graph = evidence.graphs.get(int(call.args["graph"]))
    return () if graph is None else tuple(graph.task_ids)


def _until(call: Call, calls: Sequence[Call]) -> float:
    """Return when the first call to the contrary was made."""
    return min(
        (
            other.invoked
            for other in calls
            if other.op == CONTRARY[call.op]
            and _may_have_had_effect(other)
            and not (other.outcome == "ok" and (other.returned or NEVER) < call.invoked)
        ),
        default=NEVER,
    )


def _may_have_had_effect(call: Call) -> bool:
    """Return True if a call may have had its effect.

    A client retries a call whose response was lost. If the first try succeeded and the task has
    ended by the second, the second gets a conflict.
    """
    return call.outcome != "fail" or (call.result or {}).get("code") == Conflict.code


def _violations(steps: Sequence[Step], call: Call, until: float) -> Iterator[str]:
    acknowledged_at = call.returned or 0.0
    if until <= acknowledged_at:
        return
    before: Step | None = None
    for step in steps:
        is_late = acknowledged_at + CLOCK_TOLERANCE < step.boot < until - CLOCK_TOLERANCE
        if call.op.startswith("pause") and is_late and is_lease(before, step):
            yield f"was leased {step.boot - acknowledged_at:.2f} s after its pause was acknowledged"
        before = step if step.what == "live" else before
    yield from _not_applied(steps, call, acknowledged_at)


def _not_applied(steps: Sequence[Step], call: Call, acknowledged_at: float) -> Iterator[str]:
    """Check that a task was paused, or resumed, when its call was acknowledged.

    It is sufficient if it was at any time that may be the time of the acknowledgement.
    """
    states = _possible_states(steps, acknowledged_at)
    if not states or any(step.op == "delete" or step.cancel_requested for step in states):
        return
    is_pause = call.op.startswith("pause")
    if all(bool(step.is_paused) != is_pause for step in states):
        how = "not" if is_pause else "still"
        yield f"was {how} paused when its {call.op.removesuffix(' graph')} was acknowledged"


def _possible_states(steps: Sequence[Step], at: float) -> Sequence[Step]:
    """Return the states that a task may have had at a time, within the tolerance of the clocks."""
    live = [step for step in steps if step.what == "live" and step.boot <= at + CLOCK_TOLERANCE]
    settled = sum(step.boot <= at - CLOCK_TOLERANCE for step in live)
    return live[max(settled - 1, 0) :]
