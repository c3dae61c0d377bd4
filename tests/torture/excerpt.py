"""Extracts the records around a violation, so that a person can verify the verdict.

The journal, the ledger, the calls of clients and the faults, in one list in the order of time.
"""

from collections.abc import Iterable, Iterator

from tests.torture.evidence import Evidence, Violation
from tests.torture.history import Call
from tests.torture.invariants.paths import told
from tests.torture.journal import Step

BEFORE, AFTER = 12, 6
"""How many lines are shown before the instant of a violation, and after it."""
Line = tuple[float, str]


def excerpt(evidence: Evidence, violation: Violation, began: float = 0.0) -> tuple[str, ...]:
    """Return the lines around a violation, with times in seconds since `began`."""
    witnesses = (_steps, _entries, _calls)
    lines = _in_order(line for witness in witnesses for line in witness(evidence, violation))
    shown = _around(lines, violation.at)
    if shown:
        shown = _in_order([*shown, *_troubles(evidence, shown[0][0], shown[-1][0])])
    return tuple(f"{at - began:10.3f}  {text}" for at, text in shown)


def _in_order(lines: Iterable[Line]) -> list[Line]:
    """Sort by time alone, which keeps the order of the journal where its clock is too coarse."""
    return sorted(lines, key=lambda line: line[0])


def _around(lines: list[Line], at: float | None) -> list[Line]:
    """Return the lines around an instant, or the last ones if it is not known."""
    if at is None:
        return lines[-(BEFORE + AFTER) :]
    before = [line for line in lines if line[0] <= at]
    after = [line for line in lines if line[0] > at]
    return [*before[-BEFORE:], *after[:AFTER]]


def _steps(evidence: Evidence, violation: Violation) -> Iterator[Line]:
    for step in _journal_of(evidence, violation):
        ago = f", computed {step.computed_ago:.3f} s before" if step.computed_ago > 0 else ""
        yield step.boot, f"journal  {step.what} {step.op}: {_in_words(step)}{ago}"


def _journal_of(evidence: Evidence, violation: Violation) -> Iterable[Step]:
    if violation.task is not None:
        return evidence.paths.get(violation.task, ())
    if violation.schedule is not None:
        return [one for one in evidence.books.journal if one.schedule == violation.schedule]
    if violation.incarnation is not None:
        kinds = ("incarnation", "renewal")
        return [
            one
            for one in evidence.books.journal
            if one.what in kinds and one.incarnation == violation.incarnation
        ]
    return [one for one in evidence.books.journal if one.what == "term"]


def _in_words(step: Step) -> str:
    match step.what:
        case "term":
            return f"term {step.term} of server {step.server}"
        case "incarnation" | "renewal":
            return f"{step.incarnation} {step.status or ''} {step.reason or ''}".rstrip()
        case "schedule" | "occurrence":
            shown = ("fire_at", "next_run_at", "paused_at", "task_id", "graph_id", "reason")
            row = step.row or {}
            return ", ".join(f"{name} {row[name]}" for name in shown if row.get(name) is not None)
        case _:
            return told(step) + (" paused" if step.is_paused and step.status != "paused" else "")


def _entries(evidence: Evidence, violation: Violation) -> Iterator[Line]:
    for entry in evidence.entries:
        if entry.task == violation.task and entry.what != "beat":
            yield entry.at, f"ledger   {entry.what} of token {entry.token} on {entry.node}"


def _calls(evidence: Evidence, violation: Violation) -> Iterator[Line]:
    for call in evidence.calls:
        if _is_about(evidence, call, violation):
            yield call.invoked, f"client   {call.op} asked ({call.process} {call.number})"
            if call.returned is not None:
                answer = f"{call.op} answered {call.outcome} ({call.process} {call.number})"
                yield call.returned, f"client   {answer}"


def _is_about(evidence: Evidence, call: Call, violation: Violation) -> bool:
    named = {**call.args, **(call.result or {})}
    if violation.schedule is not None:
        return str(named.get("schedule")) == str(violation.schedule)
    if violation.task is None:
        return False
    task = evidence.tasks.get(violation.task)
    graph = None if task is None else task.graph_id
    ids = [named.get("task"), named.get("id"), *(named.get("ids") or ())]
    return str(violation.task) in map(str, ids) or (
        graph is not None and str(named.get("graph")) == str(graph)
    )


def _troubles(evidence: Evidence, since: float, until: float) -> Iterator[Line]:
    for one in evidence.troubles:
        if one.began <= until and since <= one.healed:
            yield one.began, f"fault    {one.kind} {one.host} begins"
            yield one.healed, f"fault    {one.kind} {one.host} is healed"
