"""Invariant 10: a task starts only after all of its dependencies are met."""

from collections.abc import Iterator, Mapping, Sequence

from tests.torture.database_dump import EdgeRow
from tests.torture.evidence import Evidence, Violation
from tests.torture.invariants.durability import acknowledged_tasks
from tests.torture.invariants.paths import first_lease
from tests.torture.journal import Step

SATISFYING_STATUSES = {
    "success": frozenset({"done"}),
    "failure": frozenset({"failed", "cancelled"}),
    "always": frozenset({"done", "failed", "cancelled"}),
}
UPSTREAM_FAILED = "upstream_failed"
"""The reason of a task whose dependencies cannot be met."""


def dependencies(evidence: Evidence) -> list[Violation]:
    """10: no edge is lost, no task starts early, none is cancelled or blocked without a cause."""
    return [
        *_lost_edges(evidence, evidence.edges),
        *(
            Violation(10, message, task)
            for task, edges in evidence.edges.items()
            for check in (_started_early, _wrongly_held_or_cancelled)
            for message in check(evidence, task, edges)
        ),
    ]


def _lost_edges(evidence: Evidence, stored: Mapping[int, Sequence[EdgeRow]]) -> Iterator[Violation]:
    """Find acknowledged edges that are not stored."""
    for call in evidence.calls:
        if call.outcome != "ok":
            continue
        tasks = acknowledged_tasks(call)
        refs = {fields["ref"]: task for task, fields in tasks if fields.get("ref")}
        for task, fields in tasks:
            requested_edges = {
                (int(refs.get(edge["task"], edge["task"])), edge["on"])
                for edge in fields.get("depends_on") or ()
            }
            stored_edges = {(edge.upstream_id, edge.condition) for edge in stored.get(task, ())}
            if requested_edges - stored_edges:
                lost = sorted(upstream for upstream, _ in requested_edges - stored_edges)
                yield Violation(10, f"its dependency on {lost} is not stored", task)


def _started_early(evidence: Evidence, task: int, edges: Sequence[EdgeRow]) -> Iterator[str]:
    """Compare the first lease of a task with the ends of its upstreams.

    A lease sees only committed ends, so they precede it in the journal.
    """
    first = first_lease(evidence.steps_by_task.get(task, ()))
    if first is None:
        return
    for edge in edges:
        end = _end(evidence, edge.upstream_id)
        if end is None or end.seq > first.seq:
            yield f"was leased before its upstream {edge.upstream_id} had ended"
        elif end.status not in SATISFYING_STATUSES[edge.condition]:
            yield (
                f"was leased although {edge.upstream_id} ended {end.status}, "
                f"and it depends on its {edge.condition}"
            )


def _wrongly_held_or_cancelled(
    evidence: Evidence, task: int, edges: Sequence[EdgeRow]
) -> Iterator[str]:
    ends = [evidence.ends.get(edge.upstream_id) for edge in edges]
    unmet = [
        edge
        for edge, end in zip(edges, ends, strict=True)
        if end is not None and end.status not in SATISFYING_STATUSES[edge.condition]
    ]
    end = evidence.ends.get(task)
    if end is not None and end.reason == UPSTREAM_FAILED and not unmet:
        yield "was cancelled because of an upstream, and all of its conditions are met"
    row = evidence.live.get(task)
    if row is not None and row.status == "blocked" and evidence.phase == "quiet" and all(ends):
        yield "is still blocked, and all of its upstreams have ended"


def _end(evidence: Evidence, task: int) -> Step | None:
    steps = evidence.steps_by_task.get(task, ())
    return next((step for step in steps if (step.what, step.op) == ("end", "insert")), None)
