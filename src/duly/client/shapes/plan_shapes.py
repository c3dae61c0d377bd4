"""JSON types of plans, tiers and limits; a limit of None is unlimited."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from duly.client.shapes.task_shapes import Amounts, Duration, ResourceFields


class PlanFields(TypedDict, total=False):
    """Fields of a plan to create or update; absent ones are unlimited, or unchanged."""

    price_class: str | None
    price_per_task: float | None
    price_per_cpu_hour: float | None
    price_per_gib_hour: float | None
    tasks_per_hour: int | None
    burst: int | None
    max_running: int | None
    max_resources: ResourceFields | None
    max_waiting: int | None
    max_schedules: int | None
    tiers: Sequence[str] | None
    queues: Sequence[str] | None
    delay_tolerance: Duration | None
    max_delay_tolerance: Duration | None
    tolerances: Mapping[str, Duration] | None
    execution_cap: Duration | None
    max_execution_cap: Duration | None
    weight: int | None
    retention: Duration | None
    max_log_bytes: int | None
    max_result_bytes: int | None
    max_artifact_bytes: int | None
    artifact_bytes: int | None
    cpu_quota: bool | None


class Plan(TypedDict):
    """A plan; durations are in seconds."""

    name: str
    price_class: str
    price_per_task: float
    price_per_cpu_hour: float
    price_per_gib_hour: float
    tasks_per_hour: int | None
    burst: int | None
    max_running: int | None
    max_resources: dict[str, Any] | None
    max_waiting: int | None
    max_schedules: int | None
    tiers: list[str] | None
    queues: list[str] | None
    delay_tolerance: float
    max_delay_tolerance: float | None
    tolerances: dict[str, float]
    execution_cap: float
    max_execution_cap: float | None
    weight: int
    retention: float | None
    max_log_bytes: int | None
    max_result_bytes: int | None
    max_artifact_bytes: int | None
    artifact_bytes: int | None
    cpu_quota: bool
    created_at: str
    tenants: int | None


class Tier(TypedDict):
    """A tier; `defined_by` is duly, everyone or tenant."""

    name: str
    resources: Amounts
    defined_by: str
    allowed: bool


class Rate(TypedDict):
    """The submission rate limit: what is left now, and the seconds until the burst is full."""

    tasks_per_hour: int
    burst: int
    left: int
    full_in: float


class Count(TypedDict):
    """A limit on a number, and how much of it is used and left."""

    limit: int | None
    used: int
    left: int | None


class ResourceCount(TypedDict):
    """A limit on resources in use, and how much of it is used and left."""

    limit: dict[str, Any] | None
    used: Amounts
    left: dict[str, Any] | None


class Cap(TypedDict):
    """The default and the longest execution cap, in seconds."""

    default: float
    longest: float | None


class Tolerance(Cap):
    """The default and the longest delay tolerance, and those per category, in seconds."""

    categories: dict[str, float]


class Limits(TypedDict):
    """A tenant's limits and how much of them is left."""

    tenant: str
    plan: str
    rate: Rate | None
    running: Count
    resources: ResourceCount
    waiting: Count
    schedules: Count
    tiers: dict[str, Amounts]
    queues: list[str]
    execution_cap: Cap
    delay_tolerance: Tolerance
    retention: float
    log_bytes: int
    result_bytes: int
    max_artifact_bytes: int
    artifact_bytes: Count
    cpu_quota: bool
