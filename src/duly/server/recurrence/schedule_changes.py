"""Applies changed fields to a schedule, and computes its next fire time.

Pure functions of the schedule, the changes and the time.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid
from duly.model.requests.graph_request import GraphRequest
from duly.model.requests.recurrence_request import RecurrenceRequest, parse_recurrence
from duly.model.requests.schedule_request import (
    RECURRENCE_FIELDS,
    TaskOrGraph,
    check_schedule_name,
    keep_hidden_arguments,
    parse_misfire,
    parse_overlap,
    recurrence_fields,
    schedule_template,
    update_recurrence_fields,
)
from duly.model.requests.task_request import TaskRequest
from duly.model.schedules.cron import position_of_day
from duly.model.schedules.recurrence import OneTime, Recurrence
from duly.model.schedules.schedule import ScheduleTemplate
from duly.policy.schedules.recurrence import is_possible, next_after
from duly.store.tasks.schedules import StoredSchedule


def first_fire_time(recurrence: Recurrence, at: datetime) -> datetime:
    """Return the first fire time after `at`; raises Invalid when there is none."""
    fire_at = next_after(recurrence, at)
    if fire_at is not None:
        return fire_at
    field = "run_at" if recurrence.kind == "once" else recurrence.kind.value
    if not is_possible(recurrence):
        position = position_of_day(recurrence.text) if recurrence.kind == "cron" else 0
        raise Invalid(
            field, "no year has such a day, so the schedule would never fire.", position=position
        )
    if recurrence.kind == "once":
        why = "the time has passed, or is not between start_at and end_at"
    else:
        why = "no fire time is between now and end_at"
    raise Invalid(field, f"{why}, so the schedule would never fire.")


def apply_changes(old: StoredSchedule, changes: Mapping[str, Any], at: datetime) -> StoredSchedule:
    """Return a schedule with fields changed, and the next run recomputed if its rule changed."""
    template = old.template
    overlap = parse_overlap(changes["overlap"]) if "overlap" in changes else template.overlap
    misfire = parse_misfire(changes["misfire"]) if "misfire" in changes else template.misfire
    task, graph = _submitted(template, changes)
    written, anchor, recurrence = old.written, old.anchor, template.recurrence
    next_run_at = old.next_run_at
    if any(name in changes for name in RECURRENCE_FIELDS):
        request = msgspec.convert(update_recurrence_fields(old.written, changes), RecurrenceRequest)
        anchor = at if changes.get("every") is not None else old.anchor
        recurrence = parse_recurrence(request, now=anchor)
        written = recurrence_fields(request)
        next_run_at = first_fire_time(recurrence, at)
    if "next_run_at" in changes:
        next_run_at = _parse_next_run_at(changes["next_run_at"], recurrence, at)
        if isinstance(recurrence.rule, OneTime):
            # A one-off runs once: move its run_at along, or it would fire at both times.
            request = msgspec.convert(
                {**written, "run_at": next_run_at.isoformat()}, RecurrenceRequest
            )
            recurrence, written = parse_recurrence(request, now=anchor), recurrence_fields(request)
    return msgspec.structs.replace(
        old,
        template=msgspec.structs.replace(
            template,
            task=task,
            graph=graph,
            recurrence=recurrence,
            misfire=misfire,
            overlap=overlap,
        ),
        name=check_schedule_name(changes["name"]) if "name" in changes else old.name,
        written=written,
        anchor=anchor,
        next_run_at=next_run_at,
        updated_at=at,
    )


def _submitted(template: ScheduleTemplate, changes: Mapping[str, Any]) -> TaskOrGraph:
    """Return the new task or graph of a schedule; each replaces the other."""
    if "task" not in changes and "graph" not in changes:
        return template.task, template.graph
    task = msgspec.convert(changes.get("task"), TaskRequest | None)
    keep_hidden_arguments(task, template.task)
    return schedule_template(
        task,
        msgspec.convert(changes.get("graph"), GraphRequest | None),
    )


def _parse_next_run_at(text: str | None, recurrence: Recurrence, at: datetime) -> datetime:
    if text is None:
        return first_fire_time(recurrence, at)
    next_run_at = parse_time(text, "next_run_at")
    if next_run_at <= at:
        raise Invalid(
            "next_run_at",
            "it is not in the future. To run the schedule now, use 'duly schedule run'.",
        )
    if recurrence.start_at is not None and next_run_at < recurrence.start_at:
        raise Invalid("next_run_at", "it is before start_at.")
    if recurrence.end_at is not None and next_run_at > recurrence.end_at:
        raise Invalid("next_run_at", "it is after end_at.")
    return next_run_at
