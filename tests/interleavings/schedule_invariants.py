"""Invariants of schedules and their fire times."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from tests.interleavings.evidence import Evidence
from tests.interleavings.schedules import GRAPH, INTERVAL_SECONDS, is_fire_time

Row = dict[str, Any]
MICROSECOND = timedelta(microseconds=1)


def an_occurrence_has_one_task_or_graph_or_a_reason(evidence: Evidence) -> Iterator[str]:
    """And every task of a schedule belongs to an occurrence."""
    recorded_ids = [row["task_id"] or row["graph_id"] for row in evidence.occurrences]
    tasks_by_graph: dict[int, int] = {}
    for row in evidence.tasks.values():
        if row["graph_id"] is not None:
            tasks_by_graph[row["graph_id"]] = tasks_by_graph.get(row["graph_id"], 0) + 1
    for row in evidence.occurrences:
        label = f"{row['schedule_id']} at {row['fire_at']}"
        if row["task_id"] is not None and row["task_id"] not in evidence.tasks:
            yield f"{label} has a task that is not stored"
        if row["graph_id"] is not None and tasks_by_graph.get(row["graph_id"]) != len(GRAPH):
            yield f"{label} has a graph that is not stored whole"
        if row["task_id"] is None and row["graph_id"] is None and row["reason"] is None:
            yield f"{label} has neither a task nor a graph nor a reason"
    for task, row in evidence.tasks.items():
        count = recorded_ids.count(row["graph_id"] or task)
        if (row["name"] or "").startswith("fired ") and count != 1:
            yield f"task {task} belongs to {count} occurrences"


def a_claim_matches_the_current_schedule(evidence: Evidence) -> Iterator[str]:
    """A claim uses the row of the schedule at that time: the row is locked until the commit."""
    schedules: dict[int, Row] = {}
    for step in evidence.journal:
        if step["what"] == "schedules":
            if step["new"] is None:
                schedules.pop(step["old"]["id"], None)
            else:
                schedules[step["new"]["id"]] = step["new"]
        elif step["what"] == "occurrences" and step["op"] == "insert":
            yield from _check_claim(
                step["new"], schedules.get(step["new"]["schedule_id"]), evidence
            )


def _check_claim(claimed: Row, schedule: Row | None, evidence: Evidence) -> Iterator[str]:
    label = f"{claimed['schedule_id']} at {claimed['fire_at']}"
    if schedule is None:
        yield f"{label} was claimed after the schedule was removed"
        return
    fire_at = _time(claimed["fire_at"])
    name = (schedule["task"] or schedule["graph"]["defaults"])["name"]
    tasks = [task for task in evidence.tasks.values() if _belongs_to(task, claimed)]
    # Tasks of backfills run at once: only regular occurrences run at their fire time.
    if is_fire_time(fire_at) and any(task["run_at"] == fire_at for task in tasks):
        if schedule["paused_at"] is not None:
            yield f"{label} was fired after the schedule was paused"
        if fire_at < _time(schedule["next_run_at"]):
            yield f"{label} was fired after the schedule had moved on"
    if any(task["name"] != name for task in tasks):
        yield f"{label} was fired with the template from before a change"


def _belongs_to(task: Any, occurrence: Any) -> bool:
    if occurrence["graph_id"] is None:
        return bool(task["id"] == occurrence["task_id"])
    return bool(task["graph_id"] == occurrence["graph_id"])


def queued_occurrences_run_in_order(evidence: Evidence) -> Iterator[str]:
    """With overlap `queue`, occurrences run one after another, whatever their outcomes."""
    queues = {
        step["new"]["id"]
        for step in evidence.journal
        if step["what"] == "schedules" and step["new"] and step["new"]["overlap"] == "queue"
    }
    stored = {
        step["new"]["id"]: step["seq"]
        for step in evidence.journal
        if step["what"] == "live" and step["op"] == "insert"
    }
    occurrence_by_task: dict[int, Any] = {
        task: row
        for task, task_row in evidence.tasks.items()
        for row in evidence.occurrences
        if row["schedule_id"] in queues and _belongs_to(task_row, row)
    }
    ended = evidence.ended_tasks()
    for position, lease in evidence.leases():
        occurrence = occurrence_by_task.get(lease["id"])
        for task, row in occurrence_by_task.items() if occurrence is not None else ():
            is_before = row["schedule_id"] == occurrence["schedule_id"] and row is not occurrence
            if (
                is_before
                and stored[task] < stored[lease["id"]]
                and ended.get(task, position) >= position
            ):
                yield f"task {lease['id']} was leased before {task} ahead of it ended"


def every_fire_time_is_recorded(evidence: Evidence) -> Iterator[str]:
    """next_run_at never moves back, and every fire time that it passes is recorded.

    So are the fire times that were due when the schedule was removed.
    """
    recorded: dict[int, set[datetime]] = {}
    for row in evidence.occurrences:
        times = range(row["times"])
        first = row["fire_at"]
        recorded.setdefault(row["schedule_id"], set()).update(
            first + timedelta(seconds=INTERVAL_SECONDS * number) for number in times
        )
    for step in evidence.journal:
        if step["what"] == "schedules" and step["op"] in ("update", "delete"):
            schedule, at = step["old"]["id"], _time(step["old"]["next_run_at"])
            end = evidence.acknowledged.removals.get(schedule, at - MICROSECOND) + MICROSECOND
            if step["op"] == "update":
                end = _time(step["new"]["next_run_at"])
                if end < at:
                    yield f"schedule {schedule} went back from {at} to {end}"
            while at < end:
                if at not in recorded.get(schedule, set()):
                    yield f"schedule {schedule} skipped {at} without a record"
                at += timedelta(seconds=INTERVAL_SECONDS)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    an_occurrence_has_one_task_or_graph_or_a_reason,
    queued_occurrences_run_in_order,
    a_claim_matches_the_current_schedule,
    every_fire_time_is_recorded,
]
