"""Extracts the records around a violation, so that a person can verify it.

The journal, the ledger, the calls of clients and the faults, in one list sorted by time.
"""

from collections.abc import Iterable, Iterator

from tests.torture.evidence import Evidence, Violation
from tests.torture.history import Call
from tests.torture.invariants.paths import describe
from tests.torture.journal import Step

LINES_BEFORE, LINES_AFTER = 12, 6
"""The number of lines before and after the time of a violation."""
Line = tuple[float, str]


def excerpt(evidence: Evidence, violation: Violation, began: float = 0.0) -> tuple[str, ...]:
    """Return the lines around a violation, with times in seconds since `began`."""
    sources = (_steps, _entries, _calls)
    lines = _in_order(line for source in sources for line in source(evidence, violation))
    shown = _around(lines, violation.at)
    if shown:
        shown = _in_order([*shown, *_faults(evidence, shown[0][0], shown[-1][0])])
    return tuple(f"{at - began:10.3f}  {text}" for at, text in shown)


def _in_order(lines: Iterable[Line]) -> list[Line]:
    """Sort by time, stably: the order of the journal is kept where its clock is too coarse."""
    return sorted(lines, key=lambda line: line[0])


def _around(lines: list[Line], at: float | None) -> list[Line]:
    """Return the lines around a time, or the last ones if it is unknown."""
    if at is None:
        return lines[-(LINES_BEFORE + LINES_AFTER) :]
    before = [line for line in lines if line[0] <= at]
    after = [line for line in lines if line[0] > at]
    return [*before[-LINES_BEFORE:], *after[:LINES_AFTER]]


def _steps(evidence: Evidence, violation: Violation) -> Iterator[Line]:
    for step in _journal_of(evidence, violation):
        ago = f", computed {step.computed_ago:.3f} s before" if step.computed_ago > 0 else ""
        yield step.boot, f"journal  {step.what} {step.op}: {_describe_step(step)}{ago}"


def _journal_of(evidence: Evidence, violation: Violation) -> Iterable[Step]:
    if violation.task is not None:
        return evidence.steps_by_task.get(violation.task, ())
    if violation.schedule is not None:
        return [step for step in evidence.dump.journal if step.schedule == violation.schedule]
    if violation.incarnation is not None:
        kinds = ("incarnation", "renewal")
        return [
            step
            for step in evidence.dump.journal
            if step.what in kinds and step.incarnation == violation.incarnation
        ]
    return [step for step in evidence.dump.journal if step.what == "term"]


def _describe_step(step: Step) -> str:
    match step.what:
        case "term":
            return f"term {step.term} of server {step.server}"
        case "incarnation" | "renewal":
            return f"{step.incarnation} {step.status or ''} {step.reason or ''}".rstrip()
        case "schedule" | "occurrence":
            fields = ("fire_at", "next_run_at", "paused_at", "task_id", "graph_id", "reason")
            row = step.row or {}
            return ", ".join(f"{name} {row[name]}" for name in fields if row.get(name) is not None)
        case _:
            return describe(step) + (
                " paused" if step.is_paused and step.status != "paused" else ""
            )


def _entries(evidence: Evidence, violation: Violation) -> Iterator[Line]:
    for entry in evidence.entries:
        if entry.task == violation.task and entry.what != "beat":
            yield entry.at, f"ledger   {entry.what} of token {entry.token} on {entry.node}"


def _calls(evidence: Evidence, violation: Violation) -> Iterator[Line]:
    for call in evidence.calls:
        if _is_about(evidence, call, violation):
            yield call.invoked, f"client   {call.op} asked ({call.process} {call.number})"
            if call.returned is not None:
                text = f"{call.op} answered {call.outcome} ({call.process} {call.number})"
                yield call.returned, f"client   {text}"


def _is_about(evidence: Evidence, call: Call, violation: Violation) -> bool:
    fields = {**call.args, **(call.result or {})}
    if violation.schedule is not None:
        return str(fields.get("schedule")) == str(violation.schedule)
    if violation.task is None:
        return False
    task = evidence.tasks.get(violation.task)
    graph = None if task is None else task.graph_id
    ids = [fields.get("task"), fields.get("id"), *(fields.get("ids") or ())]
    return str(violation.task) in map(str, ids) or (
        graph is not None and str(fields.get("graph")) == str(graph)
    )


def _faults(evidence: Evidence, since: float, until: float) -> Iterator[Line]:
    for fault in evidence.faults:
        if fault.began <= until and since <= fault.healed:
            yield fault.began, f"fault    {fault.kind} {fault.host} begins"
            yield fault.healed, f"fault    {fault.kind} {fault.host} is healed"
