"""JSON types of queues."""

from typing import TypedDict


class QueueBounds(TypedDict, total=False):
    """The bounds of a queue; None is no bound."""

    max_share: float | str | None
    hours: str | None
    timezone: str | None


class NewQueueFields(QueueBounds, total=False):
    """Fields of a queue to create; whether it is off-peak cannot be changed later."""

    off_peak: bool


class QueueFields(QueueBounds, total=False):
    """Fields of a queue to update; absent ones are unchanged, None removes a bound."""

    level: int | None


class Queue(TypedDict):
    """A queue, and the tasks in it: of all tenants for administrators, else of the caller's."""

    name: str
    level: int
    built_in: bool
    off_peak: bool
    max_share: float | None
    hours: str | None
    timezone: str | None
    paused: bool
    paused_by: str | None
    paused_at: str | None
    waiting: int
    oldest_wait: float | None
    in_per_minute: float
    out_per_minute: float
