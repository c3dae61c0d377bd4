"""Invariant 14: a task never starts again once its cancellation was acknowledged."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import CLOCK_TOLERANCE, Evidence, Violation
from tests.torture.history import Call

SLACK_SECONDS = 2.0


def cancel(evidence: Evidence) -> list[Violation]:
    """14: after the response no lease, no process beyond the grace, and no end but `cancelled`.

    A node that is unreachable cannot be notified: the duration of a fault and of its aftermath does
    not count towards the grace.
    """
    return [
        Violation(14, message, task, at=call.returned)
        for call in evidence.calls
        if call.outcome == "ok" and call.returned is not None
        for task in _cancelled_tasks(evidence, call)
        for message in _violations(evidence, call, task)
    ]


def _cancelled_tasks(evidence: Evidence, call: Call) -> Sequence[int]:
    """Return the tasks that a call cancelled; of a graph, those that had not ended by then."""
    if call.op == "cancel":
        return [int(call.args["task"])]
    if call.op != "cancel graph":
        return []
    graph = evidence.graphs.get(int(call.args["graph"]))
    acknowledged_at = call.returned or 0.0
    return [
        task
        for task in (() if graph is None else graph.task_ids)
        if not any(
            (step.what, step.op) == ("end", "insert") and step.boot <= acknowledged_at
            for step in evidence.steps_by_task.get(task, ())
        )
    ]


def _violations(evidence: Evidence, call: Call, task: int) -> Iterator[str]:
    acknowledged_at = call.returned or 0.0
    token: int | None = None
    for step in evidence.steps_by_task.get(task, ()):
        if step.what != "live" or step.op == "delete":
            continue
        if step.token not in (None, token) and step.boot > acknowledged_at + CLOCK_TOLERANCE:
            late = step.boot - acknowledged_at
            yield f"was leased {late:.2f} s after its cancellation was acknowledged"
        token = step.token if step.token is not None else token
    end = evidence.ends.get(task)
    if end is not None and end.status != "cancelled":
        yield f"ended {end.status} although its cancellation was acknowledged"
    last = evidence.last_entry_at.get(task, acknowledged_at)
    late = last - acknowledged_at - evidence.fault_seconds(acknowledged_at, last)
    if late > evidence.settings.grace + SLACK_SECONDS:
        yield f"ran {late:.1f} s after its cancellation was acknowledged"
