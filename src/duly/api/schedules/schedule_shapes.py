"""The JSON of schedules and their occurrences in responses."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.model.requests.call_request import call_of_fields
from duly.model.schedules.recurrence import FixedInterval, OneTime, RecurrenceKind
from duly.model.task import Reason
from duly.store.tasks.schedules import Occurrence, StoredSchedule


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule.

    One of run_at, daily, weekly, monthly, annually, every and cron is not null, and one of task
    and graph.
    """

    id: str
    name: str | None
    tenant: str
    user: str | None
    task: dict[str, Any] | None
    graph: dict[str, Any] | None
    run_at: datetime | None = None
    daily: str | None = None
    weekly: str | None = None
    monthly: str | None = None
    annually: str | None = None
    every: float | None = None
    cron: str | None = None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    jitter: float
    short_month: str | None
    misfire: str
    overlap: str
    next_run_at: datetime | None
    paused: bool
    paused_at: datetime | None
    created_at: datetime
    updated_at: datetime


class FireTime(msgspec.Struct, frozen=True, kw_only=True):
    """A past fire time: its task, its graph, or why it has none; consecutive misses are merged."""

    fire_at: datetime
    last_at: datetime
    times: int
    task: str | None
    graph: str | None
    scheduling_type: str
    reason: Reason | None
    recorded_at: datetime


class Times(msgspec.Struct, frozen=True):
    """Upcoming fire times, the next one first."""

    times: list[datetime]


def schedule(stored: StoredSchedule, tenant: str) -> Schedule:
    """Return a schedule as JSON."""
    recurrence, template = stored.template.recurrence, stored.template
    is_monthly = recurrence.kind in (RecurrenceKind.MONTHLY, RecurrenceKind.ANNUALLY)
    return Schedule(
        id=str(template.id),
        name=stored.name,
        tenant=tenant,
        user=stored.user,
        task=None if template.task is None else _shown_task(template.task),
        graph=None if template.graph is None else _shown_graph(template.graph),
        **_rule_fields(stored),
        timezone=recurrence.timezone,
        start_at=recurrence.start_at,
        end_at=recurrence.end_at,
        jitter=recurrence.jitter.total_seconds(),
        short_month=stored.written.get("short_month", "last") if is_monthly else None,
        misfire=template.misfire,
        overlap=template.overlap,
        next_run_at=stored.next_run_at,
        paused=stored.paused_at is not None,
        paused_at=stored.paused_at,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )


def _shown_task(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task as requested, without what is secret."""
    shown = dict(template)
    if "call" in shown:
        call = msgspec.structs.asdict(call_of_fields(shown["call"], redacted=True))
        shown["call"] = {name: value for name, value in call.items() if value is not None}
    return shown


def _shown_graph(template: Mapping[str, Any]) -> dict[str, Any]:
    shown = {**template, "tasks": [_shown_task(task) for task in template["tasks"]]}
    if "defaults" in shown:
        shown["defaults"] = _shown_task(shown["defaults"])
    return shown


def fire_time(occurrence: Occurrence) -> FireTime:
    """Return an occurrence as JSON."""
    return FireTime(
        fire_at=occurrence.fire_at,
        last_at=occurrence.last_at or occurrence.fire_at,
        times=occurrence.times,
        task=None if occurrence.task_id is None else str(occurrence.task_id),
        graph=None if occurrence.graph_id is None else str(occurrence.graph_id),
        scheduling_type=occurrence.scheduling_type,
        reason=occurrence.reason,
        recorded_at=occurrence.recorded_at,
    )


def _rule_fields(stored: StoredSchedule) -> dict[str, Any]:
    recurrence = stored.template.recurrence
    match recurrence.rule:
        case OneTime(at):
            return {"run_at": at}
        case FixedInterval(interval):
            return {"every": interval.total_seconds()}
        case _:
            return {recurrence.kind.value: recurrence.text}
