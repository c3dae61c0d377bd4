"""Invariants of schedules and their fire times."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from tests.interleavings.evidence import Evidence
from tests.interleavings.schedules import EVERY, GRAPH, is_fire_time

Row = dict[str, Any]
MOMENT = timedelta(microseconds=1)


def an_occurrence_has_one_task_or_graph_or_a_reason(seen: Evidence) -> Iterator[str]:
    """And every task of a schedule belongs to an occurrence."""
    named = [row["task_id"] or row["graph_id"] for row in seen.occurrences]
    parts: dict[int, int] = {}
    for row in seen.tasks.values():
        if row["graph_id"] is not None:
            parts[row["graph_id"]] = parts.get(row["graph_id"], 0) + 1
    for row in seen.occurrences:
        where = f"{row['schedule_id']} at {row['fire_at']}"
        if row["task_id"] is not None and row["task_id"] not in seen.tasks:
            yield f"{where} has a task that is not stored"
        if row["graph_id"] is not None and parts.get(row["graph_id"]) != len(GRAPH):
            yield f"{where} has a graph that is not stored whole"
        if row["task_id"] is None and row["graph_id"] is None and row["reason"] is None:
            yield f"{where} has neither a task nor a graph nor a reason"
    for task, row in seen.tasks.items():
        count = named.count(row["graph_id"] or task)
        if (row["name"] or "").startswith("fired ") and count != 1:
            yield f"task {task} belongs to {count} occurrences"


def a_schedule_fires_as_it_is(seen: Evidence) -> Iterator[str]:
    """What is claimed goes by the schedule's row as it is then: nobody changes it meanwhile."""
    schedules: dict[int, Row] = {}
    for step in seen.journal:
        if step["what"] == "schedules":
            if step["new"] is None:
                schedules.pop(step["old"]["id"], None)
            else:
                schedules[step["new"]["id"]] = step["new"]
        elif step["what"] == "occurrences" and step["op"] == "insert":
            yield from _judge(step["new"], schedules.get(step["new"]["schedule_id"]), seen)


def _judge(claimed: Row, schedule: Row | None, seen: Evidence) -> Iterator[str]:
    where = f"{claimed['schedule_id']} at {claimed['fire_at']}"
    if schedule is None:
        yield f"{where} was claimed after the schedule was removed"
        return
    fire_at = _time(claimed["fire_at"])
    name = (schedule["task"] or schedule["graph"]["defaults"])["name"]
    tasks = [task for task in seen.tasks.values() if _is_of(task, claimed)]
    # What is made up for runs at once: only what fires runs at its fire time.
    if is_fire_time(fire_at) and any(task["run_at"] == fire_at for task in tasks):
        if schedule["paused_at"] is not None:
            yield f"{where} was fired after the schedule was paused"
        if fire_at < _time(schedule["next_run_at"]):
            yield f"{where} was fired after the schedule had moved on"
    if any(task["name"] != name for task in tasks):
        yield f"{where} was fired as it had been before a change"


def _is_of(task: Any, occurrence: Any) -> bool:
    if occurrence["graph_id"] is None:
        return bool(task["id"] == occurrence["task_id"])
    return bool(task["graph_id"] == occurrence["graph_id"])


def a_queued_one_begins_when_all_before_it_have_ended(seen: Evidence) -> Iterator[str]:
    """Those of one schedule with overlap `queue` run one after the other, whatever ends how."""
    queues = {
        step["new"]["id"]
        for step in seen.journal
        if step["what"] == "schedules" and step["new"] and step["new"]["overlap"] == "queue"
    }
    stored = {
        step["new"]["id"]: step["seq"]
        for step in seen.journal
        if step["what"] == "live" and step["op"] == "insert"
    }
    of: dict[int, Any] = {
        task: row
        for task, asked in seen.tasks.items()
        for row in seen.occurrences
        if row["schedule_id"] in queues and _is_of(asked, row)
    }
    ended = seen.ended_tasks()
    for place, lease in seen.leases():
        mine = of.get(lease["id"])
        for task, row in of.items() if mine is not None else ():
            is_before = row["schedule_id"] == mine["schedule_id"] and row is not mine
            if is_before and stored[task] < stored[lease["id"]] and ended.get(task, place) >= place:
                yield f"task {lease['id']} was leased before {task} ended, behind which it waits"


def no_fire_time_is_passed_over(seen: Evidence) -> Iterator[str]:
    """A schedule moves on, never back, and each time that it leaves behind is recorded.

    So are those that had come when it was removed.
    """
    covered: dict[int, set[datetime]] = {}
    for row in seen.occurrences:
        times = range(row["times"])
        first = row["fire_at"]
        covered.setdefault(row["schedule_id"], set()).update(
            first + timedelta(seconds=EVERY * number) for number in times
        )
    for step in seen.journal:
        if step["what"] == "schedules" and step["op"] in ("update", "delete"):
            schedule, at = step["old"]["id"], _time(step["old"]["next_run_at"])
            end = seen.told.removals.get(schedule, at - MOMENT) + MOMENT
            if step["op"] == "update":
                end = _time(step["new"]["next_run_at"])
                if end < at:
                    yield f"schedule {schedule} went back from {at} to {end}"
            while at < end:
                if at not in covered.get(schedule, set()):
                    yield f"schedule {schedule} passed over {at}"
                at += timedelta(seconds=EVERY)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    an_occurrence_has_one_task_or_graph_or_a_reason,
    a_queued_one_begins_when_all_before_it_have_ended,
    a_schedule_fires_as_it_is,
    no_fire_time_is_passed_over,
]
