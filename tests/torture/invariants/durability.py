"""Invariants 1, 2 and 13: exactly the acknowledged submissions are stored, each once."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.torture.database_dump import TaskRow
from tests.torture.evidence import BLUR, Evidence, Violation
from tests.torture.history import SUBMITS, Call

SINGLE = frozenset({"submit", "repeat"})
PAYLOAD = ("command", "source", "script_path", "env")
SAME_NAME = ("name", "labels", "max_attempts", "on_lost", "priority")


def no_loss(evidence: Evidence) -> list[Violation]:
    """1: each submission that was acknowledged is stored, as it was asked, before the answer."""
    return [
        violation
        for call in evidence.calls
        if call.outcome == "ok"
        for task, fields in told(call)
        for violation in _kept(evidence, call, task, fields)
    ]


def no_phantom(evidence: Evidence) -> list[Violation]:
    """2: each stored task was asked for by a client, or belongs to a fire time of a schedule.

    The client may not have been told that it was refused.
    """
    asked = [call for call in evidence.calls if call.outcome != "fail"]
    known = {task for call in asked if call.outcome == "ok" for task, _ in told(call)}
    keys = {key for call in asked for key in _keys(call)}
    known.update(
        task
        for row in evidence.books.submissions
        if row.key in keys
        for task in row.batch or [row.task_id]
    )
    known.update(task for row in evidence.books.occurrences for task in evidence.tasks_of(row))
    return [
        Violation(2, f"nobody asked for it (its key is {row.idempotency_key!r})", row.id)
        for row in evidence.books.tasks
        if row.id not in known
        and row.idempotency_key not in keys
        and row.replay_of not in evidence.tasks
    ]


def idempotency(evidence: Evidence) -> list[Violation]:
    """13: one key and one body are one task; another body under the same key is refused."""
    found = []
    stored: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for row in evidence.books.tasks:
        if row.idempotency_key is not None:
            stored[row.tenant_id, row.idempotency_key].append(row.id)
    for (_, key), ids in stored.items():
        if len(ids) > 1:
            found.append(Violation(13, f"the key {key!r} stands for the tasks {ids}", ids[0]))
    answers: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for call in evidence.calls:
        if call.outcome == "ok" and call.key is not None and call.op in SUBMITS:
            asked, given = _text(call.args), _text(_ids(call))
            first = answers[call.key].setdefault(asked, given)
            if first != given:
                found.append(Violation(13, f"the key {call.key!r} gave {first}, then {given}"))
    for key, bodies in answers.items():
        if len(bodies) > 1:
            found.append(Violation(13, f"{len(bodies)} different bodies were accepted as {key!r}"))
    return found


def _kept(
    evidence: Evidence, call: Call, task: int, fields: Mapping[str, Any]
) -> Iterator[Violation]:
    row = evidence.tasks.get(task)
    if row is None:
        yield Violation(1, "it was acknowledged and is gone", task)
        return
    if different := _differences(row, fields):
        yield Violation(1, f"it is not stored as it was asked: {', '.join(different)}", task)
    steps = evidence.paths.get(task, ())
    if call.returned is None or not steps or (steps[0].what, steps[0].op) != ("live", "insert"):
        return
    if steps[0].boot > call.returned + BLUR:
        late = steps[0].boot - call.returned
        message = f"it was acknowledged {late:.2f} s before it was stored"
        yield Violation(1, message, task, at=call.returned)


def _differences(row: TaskRow, fields: Mapping[str, Any]) -> list[str]:
    stored = {**row.payload, **{name: getattr(row, name) for name in SAME_NAME}}
    asked = {name: fields.get(name) for name in (*SAME_NAME, *PAYLOAD)}
    return [name for name, value in asked.items() if value and value != stored.get(name)]


def told(call: Call) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the tasks that a client was told of, with what it had asked for."""
    if call.op in ("batch", "submit graph"):
        asked = call.args.get("tasks", [])
        return list(zip(_ids(call), asked or [{}] * len(_ids(call)), strict=True))
    return [(task, call.args if call.op in SINGLE else {}) for task in _ids(call)]


def _ids(call: Call) -> list[int]:
    result = call.result or {}
    return [int(one) for one in result.get("ids", [result["id"]] if "id" in result else [])]


def _keys(call: Call) -> list[str]:
    if call.op not in SUBMITS:
        return []
    inner = [one.get("idempotency_key") for one in call.args.get("tasks", [])]
    keys = [call.key, call.args.get("idempotency_key"), *inner]
    return [key for key in keys if key is not None]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
