"""Says what a schedule becomes when fields of it are changed, and when it fires then.

Pure functions of the schedule, the changes and the time.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid
from duly.model.cron import position_of_day
from duly.model.graph_request import GraphRequest
from duly.model.recurrence import Once, Recurrence
from duly.model.recurrence_request import RecurrenceRequest, read_recurrence
from duly.model.request import TaskRequest
from duly.model.schedule import Template
from duly.model.schedule_request import (
    RECURRENCE,
    Submitted,
    misfire_of,
    name_of,
    overlap_of,
    rewritten,
    submitted_of,
    written_of,
)
from duly.policy.recurrence import is_possible, next_after
from duly.store.schedules import StoredSchedule


def first_after(recurrence: Recurrence, at: datetime) -> datetime:
    """Return the first fire time; raises Invalid when there is none at all."""
    found = next_after(recurrence, at)
    if found is not None:
        return found
    field = "run_at" if recurrence.kind == "once" else recurrence.kind.value
    if not is_possible(recurrence):
        position = position_of_day(recurrence.text) if recurrence.kind == "cron" else 0
        raise Invalid(field, f"{field} never fires: no year has such a day.", position=position)
    if recurrence.kind == "once":
        why = "it has passed, or is not between start_at and end_at"
    else:
        why = "it has no time that lies ahead, up to end_at"
    raise Invalid(field, f"{field} never fires: {why}.")


def changed(old: StoredSchedule, changes: Mapping[str, Any], at: datetime) -> StoredSchedule:
    """Return a schedule with fields changed; its next run is found anew if that has changed."""
    template = old.template
    overlap = overlap_of(changes["overlap"]) if "overlap" in changes else template.overlap
    misfire = misfire_of(changes["misfire"]) if "misfire" in changes else template.misfire
    task, graph = _submitted(template, changes)
    written, anchor, recurrence = old.written, old.anchor, template.recurrence
    next_run_at = old.next_run_at
    if any(name in changes for name in RECURRENCE):
        asked = msgspec.convert(rewritten(old.written, changes), RecurrenceRequest)
        anchor = at if changes.get("every") is not None else old.anchor
        recurrence = read_recurrence(asked, now=anchor)
        written = written_of(asked)
        next_run_at = first_after(recurrence, at)
    if "next_run_at" in changes:
        next_run_at = _next_run(changes["next_run_at"], recurrence, at)
        if isinstance(recurrence.rule, Once):
            # It is to run once: moved, and not here and there.
            asked = msgspec.convert(
                {**written, "run_at": next_run_at.isoformat()}, RecurrenceRequest
            )
            recurrence, written = read_recurrence(asked, now=anchor), written_of(asked)
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
        name=name_of(changes["name"]) if "name" in changes else old.name,
        written=written,
        anchor=anchor,
        next_run_at=next_run_at,
        updated_at=at,
    )


def _submitted(template: Template, changes: Mapping[str, Any]) -> Submitted:
    """Return what a schedule submits from now on: a graph takes the place of a task, and back."""
    if "task" not in changes and "graph" not in changes:
        return template.task, template.graph
    return submitted_of(
        msgspec.convert(changes.get("task"), TaskRequest | None),
        msgspec.convert(changes.get("graph"), GraphRequest | None),
    )


def _next_run(asked: str | None, recurrence: Recurrence, at: datetime) -> datetime:
    if asked is None:
        return first_after(recurrence, at)
    next_run_at = parse_time(asked, "next_run_at")
    if next_run_at <= at:
        raise Invalid("next_run_at", "next_run_at must lie ahead; to run it at once there is run.")
    if recurrence.start_at is not None and next_run_at < recurrence.start_at:
        raise Invalid("next_run_at", "next_run_at lies before start_at; nothing fires before that.")
    if recurrence.end_at is not None and next_run_at > recurrence.end_at:
        raise Invalid("next_run_at", "next_run_at lies after end_at; nothing fires after that.")
    return next_run_at
