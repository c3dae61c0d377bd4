"""What a client may ask for as a schedule, and how its task becomes one of a fire time.

The task is kept as it was asked for, not as the plan completed it: every occurrence gets
what the plan says when it fires, as if the tenant submitted it then.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid, TooLarge
from duly.model.queue import Queue
from duly.model.recurrence_request import WAYS, RecurrenceRequest
from duly.model.request import MAX_NAME, TaskRequest, check_text, complete
from duly.model.schedule import Misfire, Overlap
from duly.model.shape import Concurrency
from duly.model.task import TaskSpec
from duly.model.tenant import Plan

E = TypeVar("E", bound=StrEnum)
NOT_IN_A_TEMPLATE = {
    "run_at": "the fire time is when it runs; to spread the starts, use jitter",
    "idempotency_key": "every occurrence would be the same task; each is unique by its fire time",
}
TIMES = ("run_at", "start_at", "end_at")


class ScheduleRequest(RecurrenceRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/schedules. Exactly one field says when: run_at, daily, …, cron."""

    name: str | None = None
    task: TaskRequest
    misfire: str | None = None
    overlap: str | None = None


class ScheduleChange(RecurrenceRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/schedules/{id}; what is left out stays."""

    name: str | None = None
    task: TaskRequest | None = None
    misfire: str | None = None
    overlap: str | None = None
    next_run_at: str | None = None


RECURRENCE = RecurrenceRequest.__struct_fields__


def written_of(request: RecurrenceRequest) -> dict[str, Any]:
    """Return the recurrence as a schedule keeps it: what was given, with times in UTC."""
    given = {name: value for name in RECURRENCE if (value := getattr(request, name)) is not None}
    for name in TIMES:
        if name in given:
            given[name] = parse_time(given[name], name).astimezone(UTC).isoformat()
    return given


def rewritten(written: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recurrence with fields changed; another way to say it takes the place of the old."""
    kept = dict(written)
    ways = {name for name in WAYS if changes.get(name) is not None}
    if ways:
        kept = {name: value for name, value in kept.items() if name not in WAYS}
        if not ways & {"monthly", "annually"}:
            kept.pop("short_month", None)
    for name in RECURRENCE:
        if name in changes:
            kept.pop(name, None)
            if changes[name] is not None:
                kept[name] = changes[name]
    return kept


def name_of(name: str | None) -> str | None:
    """Return the name of a schedule; raises Invalid for one that is empty or too long."""
    if name is not None and not 1 <= len(name.strip()) <= len(name) <= MAX_NAME:
        raise Invalid("name", f"name has 1 to {MAX_NAME} characters; leave it out instead.")
    return None if name is None else check_text(name, "name")


def misfire_of(asked: str | None) -> Misfire:
    """Return what is done about missed fire times; the last is made up for unless told."""
    return _choice(asked, Misfire, "misfire", Misfire.ONCE)


def overlap_of(asked: str | None) -> Overlap:
    """Return what is done about overlap; nothing is started beside another unless told."""
    return _choice(asked, Overlap, "overlap", Overlap.SKIP)


def check_template(task: Mapping[str, Any], plan: Plan, overlap: Overlap) -> None:
    """Raise Invalid when a task could not be submitted now, or not by a schedule."""
    request = msgspec.convert(task, TaskRequest)
    for field, why in NOT_IN_A_TEMPLATE.items():
        if getattr(request, field) is not None:
            raise Invalid(f"task.{field}", f"task.{field} has no place in a schedule: {why}.")
    if overlap is Overlap.QUEUE and request.concurrency is not None:
        raise Invalid(
            "task.concurrency",
            "task.concurrency and overlap: queue say the same; leave one of them out.",
        )
    try:
        complete(request, plan)
    except Invalid as error:
        raise Invalid(f"task.{error.field}", f"task: {error.message}") from None
    except TooLarge as error:
        raise TooLarge(f"task: {error.message}", field="task") from None


def template_of(request: TaskRequest) -> dict[str, Any]:
    """Return a task as a schedule keeps it: what was given."""
    fields: dict[str, Any] = msgspec.to_builtins(request)
    return {name: value for name, value in fields.items() if value is not None}


def spec_of(
    template: Mapping[str, Any],
    plan: Plan,
    overlap: Overlap,
    *,
    schedule_id: int,
    start_at: datetime,
) -> TaskSpec:
    """Return what an occurrence asks for; raises Invalid when the plan has shrunk."""
    spec = complete(msgspec.convert(template, TaskRequest), plan)
    concurrency = spec.concurrency
    if overlap is Overlap.QUEUE:
        # One after the other: as tasks of their own, which are there to be seen and cancelled.
        concurrency = Concurrency(f"schedule:{schedule_id}", 1)
    return msgspec.structs.replace(
        spec, run_at=start_at, concurrency=concurrency, queue=spec.queue or Queue.PERIODIC
    )


def _choice(asked: str | None, kind: type[E], field: str, default: E) -> E:
    if asked is None:
        return default
    try:
        return kind(asked)
    except ValueError:
        there = ", ".join(kind)
        raise Invalid(field, f"{field} is one of {there}, not {asked[:40]!r}.") from None
