"""The JSON of plans, tiers and limits in responses; null means no limit."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from duly.api.tasks.task_shapes import Amounts, amounts
from duly.config import Settings
from duly.duration import MAX_DURATION
from duly.model.requests.allowance import allowed_tiers, requestable_queues
from duly.model.requests.amounts import amounts_to_json
from duly.model.resources import TIERS
from duly.model.tenant import Plan
from duly.store.accounts.plans import PlanView
from duly.store.accounts.tiers import Tier
from duly.store.attempts.limits import CurrentUsage

Bound = TypeVar("Bound", int, timedelta)


class PlanInfo(msgspec.Struct, frozen=True, kw_only=True):
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
    created_at: datetime
    tenants: int | None
    """The number of tenants with this plan; only administrators see it."""


class TierInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tier: its resources, who defined it, and whether the plan includes it."""

    name: str
    resources: Amounts
    defined_by: str
    """`duly` (built in), `everyone` (an administrator, for all tenants) or `tenant`."""
    allowed: bool


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate limit: tasks left now, and the seconds until the whole burst is available."""

    tasks_per_hour: int
    burst: int
    left: int
    full_in: float


class Count(msgspec.Struct, frozen=True):
    """A limit on a number: the limit, what is used and what is left."""

    limit: int | None
    used: int
    left: int | None


class ResourceCount(msgspec.Struct, frozen=True):
    """The limit on resources in use by kind; kinds without a limit are left out."""

    limit: dict[str, Any] | None
    used: Amounts
    left: dict[str, Any] | None


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """The delay tolerance of tasks, in seconds."""

    default: float
    longest: float | None
    categories: dict[str, float]


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """The execution cap of attempts, in seconds."""

    default: float
    longest: float | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a tenant, and what is left of them."""

    tenant: str
    plan: str
    rate: Rate | None
    running: Count
    resources: ResourceCount
    waiting: Count
    schedules: Count
    tiers: dict[str, Amounts]
    queues: list[str]
    """The queues that a task may request."""
    execution_cap: Cap
    delay_tolerance: Tolerance
    retention: float
    """How long finished tasks are kept, in seconds."""
    log_bytes: int
    result_bytes: int
    max_artifact_bytes: int
    artifact_bytes: Count
    cpu_quota: bool
    """Whether a task gets no more cpu than it requests, even on an idle node."""


def plan(view: PlanView) -> PlanInfo:
    """Return a plan as JSON."""
    plan = view.plan
    fields = {name: getattr(plan, name, None) for name in PlanInfo.__struct_fields__}
    return PlanInfo(
        **{
            **{name: _json_value(value) for name, value in fields.items()},
            "price_per_task": float(plan.price_per_task),
            "price_per_cpu_hour": float(plan.price_per_cpu_hour),
            "price_per_gib_hour": float(plan.price_per_gib_hour),
            "max_resources": _bounds(plan.max_resources),
            "max_execution_cap": _max_execution_cap(plan),
            "created_at": view.created_at,
            "tenants": view.tenants,
        }
    )


def tiers(stored: list[Tier], plan: Plan) -> list[TierInfo]:
    """Return every tier that a tenant can use by name, as JSON."""
    by_name = {name: (resources, "duly") for name, resources in TIERS.items()}
    by_name |= {tier.name: (tier.resources, "everyone") for tier in stored if not tier.is_own}
    by_name |= {tier.name: (tier.resources, "tenant") for tier in stored if tier.is_own}
    return [
        TierInfo(
            name=name,
            resources=amounts(resources),
            defined_by=defined_by,
            allowed=plan.tiers is None or name in plan.tiers,
        )
        for name, (resources, defined_by) in by_name.items()
    ]


def limits(tenant: str, plan: Plan, used: CurrentUsage, settings: Settings) -> Limits:
    """Return a tenant's limits and what is left of them, as JSON.

    Sizes and times are the effective ones: the smaller of the plan's and the server's settings.
    """
    execution = settings.execution
    return Limits(
        tenant=tenant,
        plan=plan.name,
        rate=_rate(plan, used),
        running=_count(plan.max_running, used.running),
        resources=_resources(plan.max_resources, used),
        waiting=_count(plan.max_waiting, used.waiting),
        schedules=_count(plan.max_schedules, used.schedules),
        tiers={name: amounts(plan.known_tiers[name]) for name in allowed_tiers(plan)},
        queues=[
            name for name in requestable_queues(plan) if plan.queues is None or name in plan.queues
        ],
        execution_cap=Cap(
            default=plan.execution_cap.total_seconds(), longest=_max_execution_cap(plan)
        ),
        delay_tolerance=Tolerance(
            default=plan.delay_tolerance.total_seconds(),
            longest=_json_value(plan.max_delay_tolerance),
            categories=plan.tolerances,
        ),
        retention=_effective(plan.retention, settings.retention.history).total_seconds(),
        log_bytes=_effective(plan.max_log_bytes, execution.log_limit),
        result_bytes=_effective(plan.max_result_bytes, execution.result_limit),
        max_artifact_bytes=_effective(plan.max_artifact_bytes, settings.requests.artifact_limit),
        artifact_bytes=_count(plan.artifact_bytes, used.artifact_bytes),
        cpu_quota=plan.cpu_quota,
    )


def _rate(plan: Plan, used: CurrentUsage) -> Rate | None:
    if plan.tasks_per_hour is None or plan.burst is None:
        return None
    tokens = used.tokens(plan.tasks_per_hour, plan.burst)
    return Rate(
        tasks_per_hour=plan.tasks_per_hour,
        burst=plan.burst,
        left=max(0, int(tokens)),
        full_in=round((plan.burst - tokens) * 3600 / plan.tasks_per_hour, 3),
    )


def _count(limit: int | None, used: int) -> Count:
    return Count(limit, used, None if limit is None else max(0, limit - used))


def _resources(limit: Mapping[str, int] | None, used: CurrentUsage) -> ResourceCount:
    in_use = dict(used.resources.items())
    left = {
        kind: max(0, maximum - in_use.get(kind, 0)) for kind, maximum in (limit or {}).items()
    } or None
    return ResourceCount(_bounds(limit), amounts(used.resources), _bounds(left))


def _bounds(kinds: Mapping[str, int] | None) -> dict[str, Any] | None:
    return None if kinds is None else amounts_to_json(kinds)


def _effective(granted: Bound | None, maximum: Bound) -> Bound:
    return maximum if granted is None else min(granted, maximum)


def _max_execution_cap(plan: Plan) -> float | None:
    cap = plan.max_execution_cap
    return None if cap >= MAX_DURATION else cap.total_seconds()


def _json_value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
