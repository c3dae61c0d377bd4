"""Invariants of overdue tasks: marked once for each wait, and cancelled only while they wait."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from tests.interleavings.evidence import Evidence


def a_wait_is_marked_as_overdue_once(evidence: Evidence) -> Iterator[str]:
    marks = defaultdict(list)
    for event in evidence.events:
        if event["kind"] == "overdue":
            marks[event["task_id"]].append(event["at"])
    for task, times in marks.items():
        waits = {
            datetime.fromisoformat(row["new"]["ready_at"])
            for row in evidence.journal
            if row["what"] == "live" and row["new"] and row["new"]["id"] == task
        }
        for first, second in zip(sorted(times), sorted(times)[1:], strict=False):
            if not any(first < began <= second for began in waits):
                yield f"task {task} was marked at {first} and at {second} in one wait"


def only_tasks_that_wait_past_their_tolerance_are_cancelled_as_overdue(
    evidence: Evidence,
) -> Iterator[str]:
    removed = {
        row["old"]["id"]: row
        for row in evidence.journal
        if row["what"] == "live" and row["op"] == "delete"
    }
    marked = {event["task_id"] for event in evidence.events if event["kind"] == "overdue"}
    for task, end in evidence.ends.items():
        if not end["reason"] or end["reason"]["code"] != "overdue":
            continue
        last = removed[task]["old"]
        if last["status"] != "waiting":
            yield f"task {task} was cancelled as overdue while {last['status']}"
        if not _is_past_tolerance(last, end["finished_at"]):
            yield f"task {task} was cancelled at {end['finished_at']}, due {last['start_by']}"
        if task not in marked:
            yield f"task {task} was cancelled as overdue and is not marked"


def _is_past_tolerance(row: dict[str, Any], at: datetime) -> bool:
    start_by = datetime.fromisoformat(row["start_by"])
    ready_at = datetime.fromisoformat(row["ready_at"])
    # A lost task keeps its start_by, and has its tolerance once more.
    return start_by <= at and (start_by >= ready_at - timedelta(seconds=1) or ready_at < at)


INVARIANTS = (
    a_wait_is_marked_as_overdue_once,
    only_tasks_that_wait_past_their_tolerance_are_cancelled_as_overdue,
)
