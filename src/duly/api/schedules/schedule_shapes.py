"""What the API tells of schedules."""

from datetime import datetime
from typing import Any

import msgspec

from duly.model.recurrence import Every, Kind, Once
from duly.model.task import Reason
from duly.store.schedules import Occurrence, StoredSchedule


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
    """What became of a fire time: a task, a graph, or why not; missed ones in a row are one."""

    fire_at: datetime
    last_at: datetime
    times: int
    task: str | None
    graph: str | None
    scheduling_type: str
    reason: Reason | None
    recorded_at: datetime


class Times(msgspec.Struct, frozen=True):
    """Fire times to come, the next one first."""

    times: list[datetime]


def schedule(stored: StoredSchedule, tenant: str) -> Schedule:
    """Return a schedule as it is told."""
    recurrence, template = stored.template.recurrence, stored.template
    is_monthly = recurrence.kind in (Kind.MONTHLY, Kind.ANNUALLY)
    return Schedule(
        id=str(template.id),
        name=stored.name,
        tenant=tenant,
        user=stored.user,
        task=None if template.task is None else dict(template.task),
        graph=None if template.graph is None else dict(template.graph),
        **_when(stored),
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


def fire_time(one: Occurrence) -> FireTime:
    """Return what became of a fire time as it is told."""
    return FireTime(
        fire_at=one.fire_at,
        last_at=one.last_at or one.fire_at,
        times=one.times,
        task=None if one.task_id is None else str(one.task_id),
        graph=None if one.graph_id is None else str(one.graph_id),
        scheduling_type=one.scheduling_type,
        reason=one.reason,
        recorded_at=one.recorded_at,
    )


def _when(stored: StoredSchedule) -> dict[str, Any]:
    recurrence = stored.template.recurrence
    match recurrence.rule:
        case Once(at):
            return {"run_at": at}
        case Every(interval):
            return {"every": interval.total_seconds()}
        case _:
            return {recurrence.kind.value: recurrence.text}
