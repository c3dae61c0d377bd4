"""What clients say and hear about plans, tiers and limits; None is no limit."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from duly.client.shapes import Amounts, Duration, ResourceFields


class PlanFields(TypedDict, total=False):
    """What may be said of a plan; what is left out has no limit, or stays as it is."""

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
    """What a plan grants; durations are seconds."""

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
    """What the name of a tier stands for, and who said so: duly, everyone or tenant."""

    name: str
    resources: Amounts
    defined_by: str
    allowed: bool


class Rate(TypedDict):
    """How many tasks may still be submitted now, and in how many seconds all of the burst."""

    tasks_per_hour: int
    burst: int
    left: int
    full_in: float


class Count(TypedDict):
    """How many there may be, are, and may come."""

    limit: int | None
    used: int
    left: int | None


class ResourceCount(TypedDict):
    """What may be in use at once, is, and is left."""

    limit: dict[str, Any] | None
    used: Amounts
    left: dict[str, Any] | None


class Cap(TypedDict):
    """How long an attempt may run, in seconds."""

    default: float
    longest: float | None


class Tolerance(Cap):
    """How long a start may be put off, in seconds."""

    categories: dict[str, float]


class Limits(TypedDict):
    """What a tenant may have, and what is left of it."""

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
