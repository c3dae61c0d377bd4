"""Invariant 20: once all faults are healed and nothing is submitted any more, every task ends."""

from tests.torture.database_dump import LiveRow
from tests.torture.evidence import Evidence, Violation


def liveness(evidence: Evidence) -> list[Violation]:
    """20: no live task and no expired lease remains."""
    if evidence.phase != "quiet":
        return []
    ended = {row.id for row in evidence.dump.incarnations if row.ended_at is not None}
    return [
        *(Violation(20, _describe(row, ended), row.id) for row in evidence.dump.live),
        *(
            Violation(20, f"the lease of incarnation {row.id} expired and was not ended")
            for row in evidence.dump.incarnations
            if row.is_late
        ),
    ]


def _describe(row: LiveRow, ended: set[int]) -> str:
    if row.status == "running":
        if row.incarnation_id in ended:
            return f"runs on incarnation {row.incarnation_id}, which has ended"
        return f"still runs (attempt {row.attempt})"
    return f"is still {row.status}, {row.ready_ago:.0f} s after it was ready"
