"""Invariant 18: reads are monotonic; after a final status nothing else is read."""

from collections.abc import Iterator

from tests.torture.evidence import Evidence, Violation

FINAL = frozenset({"done", "failed", "cancelled"})


def reads(evidence: Evidence) -> list[Violation]:
    """18: a final status never changes between reads, and is the one in the database."""
    return [Violation(18, message, task) for task, message in _violations(evidence)]


def _violations(evidence: Evidence) -> Iterator[tuple[int, str]]:
    results = sorted(
        (call.returned, int(call.result["id"]), call.result["status"], call.invoked)
        for call in evidence.calls
        if call.outcome == "ok"
        and call.returned is not None
        and call.result is not None
        and "id" in call.result
        and "status" in call.result
    )
    first: dict[int, tuple[float, str]] = {}
    for returned, task, status, invoked in results:
        since, ended = first.get(task, (float("inf"), ""))
        if invoked >= since and status != ended:
            yield task, f"was read as {status} after it had been read as {ended}"
        if status not in FINAL:
            continue
        first.setdefault(task, (returned, status))
        end = evidence.ends.get(task)
        if end is None or end.status != status:
            stored = "not ended" if end is None else end.status
            yield task, f"was read as {status}, but is {stored}"
