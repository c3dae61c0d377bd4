"""Invariant 18: reads are monotonic; after a final status nothing else is read."""

from collections.abc import Iterator

from tests.torture.evidence import Evidence, Violation

FINAL = frozenset({"done", "failed", "cancelled"})


def reads(evidence: Evidence) -> list[Violation]:
    """18: reads never go back from a final status, and tell the one that is in the database."""
    return [Violation(18, message, task) for task, message in _wrong(evidence)]


def _wrong(evidence: Evidence) -> Iterator[tuple[int, str]]:
    shown = sorted(
        (call.returned, int(call.result["id"]), call.result["status"], call.invoked)
        for call in evidence.calls
        if call.outcome == "ok"
        and call.returned is not None
        and call.result is not None
        and "id" in call.result
        and "status" in call.result
    )
    first: dict[int, tuple[float, str]] = {}
    for returned, task, status, invoked in shown:
        since, ended = first.get(task, (float("inf"), ""))
        if invoked >= since and status != ended:
            yield task, f"was shown {status} after it had been shown {ended}"
        if status not in FINAL:
            continue
        first.setdefault(task, (returned, status))
        end = evidence.ends.get(task)
        if end is None or end.status != status:
            stored = "not ended" if end is None else end.status
            yield task, f"was shown {status}, but is {stored}"
