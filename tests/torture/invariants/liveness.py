"""Invariant 20: when all is healed and nothing is submitted any more, everything ends."""

from tests.torture.database_dump import LiveRow
from tests.torture.evidence import Evidence, Violation


def liveness(evidence: Evidence) -> list[Violation]:
    """20: no task is left that could have run, and no lease that nobody keeps."""
    if evidence.phase != "quiet":
        return []
    ended = {row.id for row in evidence.books.incarnations if row.ended_at is not None}
    return [
        *(Violation(20, _left(row, ended), row.id) for row in evidence.books.live),
        *(
            Violation(20, f"the lease of incarnation {row.id} ran out and nobody ended it")
            for row in evidence.books.incarnations
            if row.is_late
        ),
    ]


def _left(row: LiveRow, ended: set[int]) -> str:
    if row.status == "running":
        if row.incarnation_id in ended:
            return f"runs on incarnation {row.incarnation_id}, which has ended"
        return f"still runs (attempt {row.attempt})"
    return f"is still {row.status}, {row.ready_ago:.0f} s after it might have started"
