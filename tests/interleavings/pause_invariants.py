"""Invariants of pausing and resuming tasks, alone or with their graphs."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from tests.interleavings.evidence import Evidence

PAUSES = ("paused", "pause_requested")
Step = tuple[int, datetime, dict[str, Any], dict[str, Any]]


def _steps(evidence: Evidence) -> Iterator[Step]:
    """Yield (position, time, old, new) of every change of a live task."""
    for row in evidence.journal:
        if row["what"] == "live" and row["op"] == "update":
            yield row["seq"], row["at"], row["old"], row["new"]


def _pauses_or_resumes(evidence: Evidence, *, paused: bool) -> Iterator[Step]:
    """Yield the steps that paused a task, or those that resumed one."""
    for step in _steps(evidence):
        if (step[2]["is_paused"], step[3]["is_paused"]) == (not paused, paused):
            yield step


def a_paused_task_neither_waits_nor_starts(evidence: Evidence) -> Iterator[str]:
    for _, _, old, new in _steps(evidence):
        if old["is_paused"] and old["status"] != "running" and new["status"] == "running":
            yield f"task {new['id']} was leased while it was paused"
        if new["status"] != "running" and new["is_paused"] != (new["status"] == "paused"):
            yield f"task {new['id']} is {new['status']}, and paused is {new['is_paused']}"


def every_pause_and_resume_has_an_event(evidence: Evidence) -> Iterator[str]:
    for paused, kinds in ((True, PAUSES), (False, ("resumed",))):
        steps = Counter(new["id"] for *_, new in _pauses_or_resumes(evidence, paused=paused))
        recorded = Counter(row["task_id"] for row in evidence.events if row["kind"] in kinds)
        if steps != recorded:
            yield f"{kinds[-1]}: {dict(steps)}, but the events are {dict(recorded)}"


def every_pause_event_names_its_cause(evidence: Evidence) -> Iterator[str]:
    for row in evidence.events:
        if row["kind"] in PAUSES and row["details"].keys() not in ({"by"}, {"graph"}):
            yield f"the event of the pause of {row['task_id']} has the details {row['details']}"


def an_acknowledged_pause_was_made(evidence: Evidence) -> Iterator[str]:
    for op, paused in (("paused", True), ("resumed", False)):
        positions: dict[int, int] = {}
        for position, _, _, new in _pauses_or_resumes(evidence, paused=paused):
            positions.setdefault(new["id"], position)
        for answer in evidence.answers_to(op):
            if answer.value and positions.get(answer.subject, 2**62) > answer.position:
                yield f"task {answer.subject} was acknowledged as {op}, and was not"


def a_pause_extends_start_by_by_its_duration_only(evidence: Evidence) -> Iterator[str]:
    """It extends start_by by its own duration, not by the time that the task waited before."""
    since: dict[int, datetime] = {}
    for _, at, old, new in _steps(evidence):
        if new["status"] == "paused" and old["status"] not in ("paused", "running"):
            since[new["id"]] = at
        is_free = old["status"] == "paused" and not old["blocked_by"]
        if not is_free or new["is_paused"]:
            continue
        ready_at = datetime.fromisoformat(old["ready_at"])
        if ready_at < since.get(new["id"], ready_at):
            yield f"task {new['id']} got a later start_by for the time before its pause"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    a_paused_task_neither_waits_nor_starts,
    every_pause_and_resume_has_an_event,
    every_pause_event_names_its_cause,
    an_acknowledged_pause_was_made,
    a_pause_extends_start_by_by_its_duration_only,
]
