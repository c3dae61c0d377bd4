"""The laws of schedules and their fire times."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from tests.interleavings.evidence import Evidence
from tests.interleavings.schedules import EVERY, is_fire_time

Row = dict[str, Any]


def an_occurrence_has_one_task_or_a_reason(seen: Evidence) -> Iterator[str]:
    """And every task of a schedule belongs to an occurrence."""
    named = [row["task_id"] for row in seen.occurrences if row["task_id"] is not None]
    for row in seen.occurrences:
        where = f"{row['schedule_id']} at {row['fire_at']}"
        if row["task_id"] is not None and row["task_id"] not in seen.tasks:
            yield f"{where} has a task that is not stored"
        if row["task_id"] is None and row["reason"] is None:
            yield f"{where} has neither a task nor a reason"
    for task, row in seen.tasks.items():
        if (row["name"] or "").startswith("fired ") and named.count(task) != 1:
            yield f"task {task} belongs to {named.count(task)} occurrences"


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
    task = seen.tasks.get(claimed["task_id"] or 0)
    # What is made up for runs at once: only what fires runs at its fire time.
    if task is not None and is_fire_time(fire_at) and task["run_at"] == fire_at:
        if schedule["paused_at"] is not None:
            yield f"{where} was fired after the schedule was paused"
        if fire_at < _time(schedule["next_run_at"]):
            yield f"{where} was fired after the schedule had moved on"
    if task is not None and task["name"] != schedule["task"]["name"]:
        yield f"{where} was fired as it had been before a change"


def no_fire_time_is_passed_over(seen: Evidence) -> Iterator[str]:
    """A schedule moves on, never back, and each time that it leaves behind is recorded."""
    covered: dict[int, set[datetime]] = {}
    for row in seen.occurrences:
        times = range(row["times"])
        first = row["fire_at"]
        covered.setdefault(row["schedule_id"], set()).update(
            first + timedelta(seconds=EVERY * number) for number in times
        )
    for step in seen.journal:
        if step["what"] == "schedules" and step["op"] == "update":
            schedule = step["new"]["id"]
            at, end = _time(step["old"]["next_run_at"]), _time(step["new"]["next_run_at"])
            if end < at:
                yield f"schedule {schedule} went back from {at} to {end}"
            while at < end:
                if at not in covered.get(schedule, set()):
                    yield f"schedule {schedule} passed over {at}"
                at += timedelta(seconds=EVERY)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


LAWS: list[Callable[[Evidence], Iterator[str]]] = [
    an_occurrence_has_one_task_or_a_reason,
    a_schedule_fires_as_it_is,
    no_fire_time_is_passed_over,
]
