"""Invariants 1, 2 and 13: exactly the acknowledged submissions are stored, each once."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.torture.database_dump import TaskRow
from tests.torture.evidence import CLOCK_TOLERANCE, Evidence, Violation
from tests.torture.history import SUBMITS, Call

SINGLE_SUBMITS = frozenset({"submit", "repeat"})
FIELDS_OF_THE_PAYLOAD = ("command", "source", "script_path", "env")
FIELDS_OF_THE_ROW = ("name", "labels", "max_attempts", "on_lost", "priority")


def no_loss(evidence: Evidence) -> list[Violation]:
    """1: each acknowledged submission is stored unchanged, before the response."""
    return [
        violation
        for call in evidence.calls
        if call.outcome == "ok"
        for task, fields in acknowledged_tasks(call)
        for violation in _storage_violations(evidence, call, task, fields)
    ]


def no_phantom(evidence: Evidence) -> list[Violation]:
    """2: each stored task was submitted by a client, or belongs to an occurrence of a schedule.

    The submission must not have been refused.
    """
    calls = [call for call in evidence.calls if call.outcome != "fail"]
    accounted = {
        task for call in calls if call.outcome == "ok" for task, _ in acknowledged_tasks(call)
    }
    keys = {key for call in calls for key in _keys(call)}
    accounted.update(
        task
        for row in evidence.dump.submissions
        if row.key in keys
        for task in row.batch or [row.task_id]
    )
    accounted.update(task for row in evidence.dump.occurrences for task in evidence.tasks_of(row))
    return [
        Violation(2, f"no client submitted it (its key is {row.idempotency_key!r})", row.id)
        for row in evidence.dump.tasks
        if row.id not in accounted
        and row.idempotency_key not in keys
        and row.replay_of not in evidence.tasks
    ]


def idempotency(evidence: Evidence) -> list[Violation]:
    """13: one key with one body is one task; another body under the same key is refused."""
    violations = []
    stored: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for row in evidence.dump.tasks:
        if row.idempotency_key is not None:
            stored[row.tenant_id, row.idempotency_key].append(row.id)
    for (_, key), ids in stored.items():
        if len(ids) > 1:
            violations.append(Violation(13, f"the key {key!r} stands for the tasks {ids}", ids[0]))
    answers: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for call in evidence.calls:
        if call.outcome == "ok" and call.key is not None and call.op in SUBMITS:
            body, ids_text = _text(call.args), _text(_ids(call))
            first = answers[call.key].setdefault(body, ids_text)
            if first != ids_text:
                violations.append(
                    Violation(13, f"the key {call.key!r} gave {first}, then {ids_text}")
                )
    for key, bodies in answers.items():
        if len(bodies) > 1:
            violations.append(
                Violation(13, f"{len(bodies)} different bodies were accepted as {key!r}")
            )
    return violations


def _storage_violations(
    evidence: Evidence, call: Call, task: int, fields: Mapping[str, Any]
) -> Iterator[Violation]:
    row = evidence.tasks.get(task)
    if row is None:
        yield Violation(1, "was acknowledged and is not stored", task)
        return
    if different := _differences(row, fields):
        yield Violation(1, f"differs from its submission: {', '.join(different)}", task)
    steps = evidence.steps_by_task.get(task, ())
    if call.returned is None or not steps or (steps[0].what, steps[0].op) != ("live", "insert"):
        return
    if steps[0].boot > call.returned + CLOCK_TOLERANCE:
        late = steps[0].boot - call.returned
        message = f"was acknowledged {late:.2f} s before it was stored"
        yield Violation(1, message, task, at=call.returned)


def _differences(row: TaskRow, fields: Mapping[str, Any]) -> list[str]:
    stored = {**row.payload, **{name: getattr(row, name) for name in FIELDS_OF_THE_ROW}}
    submitted = {name: fields.get(name) for name in (*FIELDS_OF_THE_ROW, *FIELDS_OF_THE_PAYLOAD)}
    return [name for name, value in submitted.items() if value and value != stored.get(name)]


def acknowledged_tasks(call: Call) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the tasks that a call acknowledged, with the submitted fields."""
    if call.op in ("batch", "submit graph"):
        submitted = call.args.get("tasks", [])
        return list(zip(_ids(call), submitted or [{}] * len(_ids(call)), strict=True))
    return [(task, call.args if call.op in SINGLE_SUBMITS else {}) for task in _ids(call)]


def _ids(call: Call) -> list[int]:
    result = call.result or {}
    return [int(task) for task in result.get("ids", [result["id"]] if "id" in result else [])]


def _keys(call: Call) -> list[str]:
    if call.op not in SUBMITS:
        return []
    inner = [fields.get("idempotency_key") for fields in call.args.get("tasks", [])]
    keys = [call.key, call.args.get("idempotency_key"), *inner]
    return [key for key in keys if key is not None]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
