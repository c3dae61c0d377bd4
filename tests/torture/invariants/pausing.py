"""Invariant 23: nothing starts of what a client was told is paused, until it asks for more.

A pause of a graph is carried out in pieces, so nothing is said of the time before its answer.
Nor of any time after a call to the contrary was made, if that may have been done, then or later.
In a run, a task is paused alone or with its graph, and never in both ways.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from duly.errors import Conflict
from tests.torture.evidence import BLUR, Evidence, Violation
from tests.torture.history import Call
from tests.torture.invariants.paths import is_lease
from tests.torture.journal import Step

CONTRARY = {
    "pause graph": "resume graph",
    "resume graph": "pause graph",
    "pause": "resume",
    "resume": "pause",
}
FOR_EVER = float("inf")


def pause(evidence: Evidence) -> list[Violation]:
    """23: after the answer to a pause no lease, and all is paused; after a resume nothing is."""
    calls: defaultdict[tuple[int, ...], list[Call]] = defaultdict(list)
    for call in evidence.calls:
        if call.op in CONTRARY:
            calls[_meant(evidence, call)].append(call)
    return [
        Violation(23, message, task, at=call.returned)
        for tasks, ones in calls.items()
        for call in ones
        if call.outcome == "ok" and call.returned is not None
        for task in tasks
        for message in _wrong(evidence.paths.get(task, ()), call, _until(call, ones))
    ]


def _meant(evidence: Evidence, call: Call) -> tuple[int, ...]:
    """Return the tasks that a call was about."""
    if "task" in call.args:
        return (int(call.args["task"]),)
    graph = evidence.graphs.get(int(call.args["graph"]))
    return () if graph is None else tuple(graph.task_ids)


def _until(call: Call, all_of_them: Sequence[Call]) -> float:
    """Return when somebody asked for the contrary."""
    return min(
        (
            one.invoked
            for one in all_of_them
            if one.op == CONTRARY[call.op]
            and _may_have_been_done(one)
            and not (one.outcome == "ok" and (one.returned or FOR_EVER) < call.invoked)
        ),
        default=FOR_EVER,
    )


def _may_have_been_done(call: Call) -> bool:
    """Say whether a call may have had its effect.

    A client repeats a call whose answer was lost. If the first try was carried out and the task has
    ended by the next one, that is answered with a conflict.
    """
    return call.outcome != "fail" or (call.result or {}).get("code") == Conflict.code


def _wrong(steps: Sequence[Step], call: Call, until: float) -> Iterator[str]:
    told = call.returned or 0.0
    if until <= told:
        return
    before: Step | None = None
    for step in steps:
        is_late = told + BLUR < step.boot < until - BLUR
        if call.op.startswith("pause") and is_late and is_lease(before, step):
            yield f"was leased {step.boot - told:.2f} s after its pause was told"
        before = step if step.what == "live" else before
    yield from _not_done(steps, call, told)


def _not_done(steps: Sequence[Step], call: Call, told: float) -> Iterator[str]:
    """Look at how a task was left when a client was told that all is done.

    It is enough if it was so at any time that may have been that of the answer.
    """
    left = _left(steps, told)
    if not left or any(step.op == "delete" or step.cancel_requested for step in left):
        return
    is_pause = call.op.startswith("pause")
    if all(bool(step.is_paused) != is_pause for step in left):
        how = "not" if is_pause else "still"
        yield f"was {how} paused when its {call.op.removesuffix(' graph')} was told"


def _left(steps: Sequence[Step], at: float) -> Sequence[Step]:
    """Return as what a task may be seen at an instant, as precisely as the clocks can tell."""
    live = [step for step in steps if step.what == "live" and step.boot <= at + BLUR]
    settled = sum(step.boot <= at - BLUR for step in live)
    return live[max(settled - 1, 0) :]
