"""Invariant 14: what a client was told is cancelled never starts again, and ends so."""

from collections.abc import Iterator, Sequence

from tests.torture.evidence import BLUR, Evidence, Violation
from tests.torture.history import Call

SLACK = 2.0


def cancel(evidence: Evidence) -> list[Violation]:
    """14: after the answer no lease, no process beyond the grace, and no end but `cancelled`.

    A node that cannot be reached cannot be told: time in trouble, and until all is well again
    after it, does not count towards the grace.
    """
    return [
        Violation(14, message, task, at=call.returned)
        for call in evidence.calls
        if call.outcome == "ok" and call.returned is not None
        for task in _cancelled(evidence, call)
        for message in _alive(evidence, call, task)
    ]


def _cancelled(evidence: Evidence, call: Call) -> Sequence[int]:
    """Return the tasks that a call has cancelled; of a graph those that had not ended by then."""
    if call.op == "cancel":
        return [int(call.args["task"])]
    if call.op != "cancel graph":
        return []
    graph = evidence.graphs.get(int(call.args["graph"]))
    told = call.returned or 0.0
    return [
        task
        for task in (() if graph is None else graph.task_ids)
        if not any(
            (step.what, step.op) == ("end", "insert") and step.boot <= told
            for step in evidence.paths.get(task, ())
        )
    ]


def _alive(evidence: Evidence, call: Call, task: int) -> Iterator[str]:
    told = call.returned or 0.0
    token: int | None = None
    for step in evidence.paths.get(task, ()):
        if step.what != "live" or step.op == "delete":
            continue
        if step.token not in (None, token) and step.boot > told + BLUR:
            yield f"was leased {step.boot - told:.2f} s after its cancellation was told"
        token = step.token if step.token is not None else token
    end = evidence.ends.get(task)
    if end is not None and end.status != "cancelled":
        yield f"ended {end.status} although its cancellation was told"
    last = evidence.last_words.get(task, told)
    late = last - told - evidence.trouble_between(told, last)
    if late > evidence.rules.grace + SLACK:
        yield f"ran {late:.1f} s after its cancellation was told"
