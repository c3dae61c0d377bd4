"""Invariant 10: a task starts after what it waits for has ended as it asked, and else never."""

from collections.abc import Iterator, Mapping, Sequence

from tests.torture.database_dump import EdgeRow
from tests.torture.evidence import Evidence, Violation
from tests.torture.invariants.durability import told
from tests.torture.invariants.paths import first_lease
from tests.torture.journal import Step

MET = {
    "success": frozenset({"done"}),
    "failure": frozenset({"failed", "cancelled"}),
    "always": frozenset({"done", "failed", "cancelled"}),
}
NEVER = "upstream_failed"
"""The reason of a task that could never run."""


def dependencies(evidence: Evidence) -> list[Violation]:
    """10: no edge is lost, none starts early, none is given up or kept waiting without a cause."""
    return [
        *_lost(evidence, evidence.edges),
        *(
            Violation(10, message, task)
            for task, edges in evidence.edges.items()
            for check in (_early, _kept)
            for message in check(evidence, task, edges)
        ),
    ]


def _lost(evidence: Evidence, stored: Mapping[int, Sequence[EdgeRow]]) -> Iterator[Violation]:
    """Find edges that a client asked for and was told are stored."""
    for call in evidence.calls:
        if call.outcome != "ok":
            continue
        asked = told(call)
        refs = {fields["ref"]: task for task, fields in asked if fields.get("ref")}
        for task, fields in asked:
            wanted = {
                (int(refs.get(one["task"], one["task"])), one["on"])
                for one in fields.get("depends_on") or ()
            }
            has = {(edge.upstream_id, edge.condition) for edge in stored.get(task, ())}
            if wanted - has:
                lost = sorted(upstream for upstream, _ in wanted - has)
                yield Violation(10, f"it was to wait for {lost}, which is not stored", task)


def _early(evidence: Evidence, task: int, edges: Sequence[EdgeRow]) -> Iterator[str]:
    """Compare the first lease of a task with the ends that it waited for.

    Whoever leases has seen those ends committed, so they are before it in the journal.
    """
    first = first_lease(evidence.paths.get(task, ()))
    if first is None:
        return
    for edge in edges:
        end = _end(evidence, edge.upstream_id)
        if end is None or end.seq > first.seq:
            yield f"was leased before {edge.upstream_id} had ended, for which it waits"
        elif end.status not in MET[edge.condition]:
            yield (
                f"was leased although {edge.upstream_id} ended {end.status}, "
                f"and it was to wait for its {edge.condition}"
            )


def _kept(evidence: Evidence, task: int, edges: Sequence[EdgeRow]) -> Iterator[str]:
    ends = [evidence.ends.get(edge.upstream_id) for edge in edges]
    unmet = [
        edge
        for edge, end in zip(edges, ends, strict=True)
        if end is not None and end.status not in MET[edge.condition]
    ]
    end = evidence.ends.get(task)
    if end is not None and end.reason == NEVER and not unmet:
        yield "was given up for an upstream, and none of them has ended otherwise than asked"
    row = evidence.live.get(task)
    if row is not None and row.status == "blocked" and evidence.phase == "quiet" and all(ends):
        yield "is still blocked, and all that it waits for has ended"


def _end(evidence: Evidence, task: int) -> Step | None:
    steps = evidence.paths.get(task, ())
    return next((step for step in steps if (step.what, step.op) == ("end", "insert")), None)
