"""JSON types of schedules."""

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict

from duly.client.shapes.task_shapes import Duration, Instant, Reason, TaskFields


class RecurrenceFields(TypedDict, total=False):
    """When a schedule fires: exactly one of run_at, daily, weekly, …, every and cron."""

    run_at: Instant | None
    daily: str | None
    weekly: str | None
    monthly: str | None
    annually: str | None
    every: Duration | None
    cron: str | None
    timezone: str | None
    start_at: Instant | None
    end_at: Instant | None
    jitter: Duration | None
    short_month: str | None


class GraphFields(TypedDict, total=False):
    """A graph to submit; `tasks` is a mapping from ref to task, or a list of tasks."""

    name: str | None
    defaults: TaskFields | None
    tasks: Required[Mapping[str, TaskFields] | Sequence[TaskFields]]


class ScheduleFields(RecurrenceFields, total=False):
    """A schedule to create; its `task` or `graph` is submitted at each fire time."""

    name: str | None
    task: TaskFields | None
    graph: GraphFields | None
    misfire: str | None
    overlap: str | None


class ScheduleChanges(ScheduleFields, total=False):
    """Fields of a schedule that can be changed; None resets a field to its default."""

    next_run_at: Instant | None


class Schedule(TypedDict):
    """A schedule; durations are in seconds."""

    id: str
    name: str | None
    tenant: str
    user: str | None
    task: dict[str, Any] | None
    graph: dict[str, Any] | None
    run_at: str | None
    daily: str | None
    weekly: str | None
    monthly: str | None
    annually: str | None
    every: float | None
    cron: str | None
    timezone: str
    start_at: str | None
    end_at: str | None
    jitter: float
    short_month: str | None
    misfire: str
    overlap: str
    next_run_at: str | None
    paused: bool
    paused_at: str | None
    created_at: str
    updated_at: str


class Occurrence(TypedDict):
    """The outcome of a fire time; consecutive missed ones are merged, `fire_at` to `last_at`."""

    fire_at: str
    last_at: str
    times: int
    task: str | None
    graph: str | None
    scheduling_type: str
    reason: Reason | None
    recorded_at: str
