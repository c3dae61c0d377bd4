"""What the API answers about plans, tiers and limits, field by field; null is no limit."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from duly.api.shapes import Amounts, amounts
from duly.config import Settings
from duly.duration import LONGEST
from duly.model.allowance import allowed_tiers
from duly.model.amounts import told_amounts
from duly.model.queue import ASKABLE
from duly.model.resources import TIERS
from duly.model.tenant import Plan
from duly.store.limits import Used
from duly.store.plans import PlanView
from duly.store.tiers import Tier

Least = TypeVar("Least", int, timedelta)


class PlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
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
    created_at: datetime
    tenants: int | None
    """How many have it; for administrators alone."""


class TierAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a tier stands for, who said so, and whether the plan includes it."""

    name: str
    resources: Amounts
    defined_by: str
    """`duly`, `everyone` (an administrator, for all) or `tenant`."""
    allowed: bool


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks may still be submitted now, and in how many seconds all of the burst."""

    tasks_per_hour: int
    burst: int
    left: int
    full_in: float


class Count(msgspec.Struct, frozen=True):
    """How many there may be, are, and may come."""

    limit: int | None
    used: int
    left: int | None


class ResourceCount(msgspec.Struct, frozen=True):
    """What may be in use at once, is, and is left, by kind; kinds without a limit are not told."""

    limit: dict[str, Any] | None
    used: Amounts
    left: dict[str, Any] | None


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How long a start may be put off, in seconds."""

    default: float
    longest: float | None
    categories: dict[str, float]


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """How long an attempt may run, in seconds."""

    default: float
    longest: float | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
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
    """Those that a task may ask for."""
    execution_cap: Cap
    delay_tolerance: Tolerance
    retention: float
    """How long what has ended is kept, in seconds."""
    log_bytes: int
    result_bytes: int
    max_artifact_bytes: int
    artifact_bytes: Count
    cpu_quota: bool
    """Whether a task gets no more cpu than it asks for, even where processors are idle."""


def plan(view: PlanView) -> PlanAnswer:
    """Return a plan as it is told."""
    found = view.plan
    fields = {name: getattr(found, name, None) for name in PlanAnswer.__struct_fields__}
    return PlanAnswer(
        **{
            **{name: _told(value) for name, value in fields.items()},
            "price_per_task": float(found.price_per_task),
            "price_per_cpu_hour": float(found.price_per_cpu_hour),
            "price_per_gib_hour": float(found.price_per_gib_hour),
            "max_resources": _bounds(found.max_resources),
            "max_execution_cap": _longest_cap(found),
            "created_at": view.created_at,
            "tenants": view.tenants,
        }
    )


def tiers(said: list[Tier], found: Plan) -> list[TierAnswer]:
    """Return every tier that a tenant knows, as it is told."""
    known = {name: (resources, "duly") for name, resources in TIERS.items()}
    known |= {one.name: (one.resources, "everyone") for one in said if not one.is_own}
    known |= {one.name: (one.resources, "tenant") for one in said if one.is_own}
    return [
        TierAnswer(
            name=name,
            resources=amounts(resources),
            defined_by=who,
            allowed=found.tiers is None or name in found.tiers,
        )
        for name, (resources, who) in known.items()
    ]


def limits(tenant: str, found: Plan, used: Used, settings: Settings) -> Limits:
    """Return what a tenant may have and what is left of it, as it is told.

    Sizes and times are those that count in the end: what a plan grants beyond the settings
    nobody gets.
    """
    execution = settings.execution
    return Limits(
        tenant=tenant,
        plan=found.name,
        rate=_rate(found, used),
        running=_count(found.max_running, used.running),
        resources=_resources(found.max_resources, used),
        waiting=_count(found.max_waiting, used.waiting),
        schedules=_count(found.max_schedules, used.schedules),
        tiers={name: amounts(found.known_tiers[name]) for name in allowed_tiers(found)},
        queues=[name for name in ASKABLE if found.queues is None or name in found.queues],
        execution_cap=Cap(default=found.execution_cap.total_seconds(), longest=_longest_cap(found)),
        delay_tolerance=Tolerance(
            default=found.delay_tolerance.total_seconds(),
            longest=_told(found.max_delay_tolerance),
            categories=found.tolerances,
        ),
        retention=_smaller(found.retention, settings.retention.history).total_seconds(),
        log_bytes=_smaller(found.max_log_bytes, execution.log_limit),
        result_bytes=_smaller(found.max_result_bytes, execution.result_limit),
        max_artifact_bytes=_smaller(found.max_artifact_bytes, settings.requests.artifact_limit),
        artifact_bytes=_count(found.artifact_bytes, used.artifact_bytes),
        cpu_quota=found.cpu_quota,
    )


def _rate(found: Plan, used: Used) -> Rate | None:
    if found.tasks_per_hour is None or found.burst is None:
        return None
    tokens = used.tokens(found.tasks_per_hour, found.burst)
    return Rate(
        tasks_per_hour=found.tasks_per_hour,
        burst=found.burst,
        left=max(0, int(tokens)),
        full_in=round((found.burst - tokens) * 3600 / found.tasks_per_hour, 3),
    )


def _count(limit: int | None, used: int) -> Count:
    return Count(limit, used, None if limit is None else max(0, limit - used))


def _resources(limit: Mapping[str, int] | None, used: Used) -> ResourceCount:
    taken = dict(used.resources.items())
    left = {kind: max(0, most - taken.get(kind, 0)) for kind, most in (limit or {}).items()} or None
    return ResourceCount(_bounds(limit), amounts(used.resources), _bounds(left))


def _bounds(kinds: Mapping[str, int] | None) -> dict[str, Any] | None:
    return None if kinds is None else told_amounts(kinds)


def _smaller(granted: Least | None, most: Least) -> Least:
    return most if granted is None else min(granted, most)


def _longest_cap(found: Plan) -> float | None:
    longest = found.max_execution_cap
    return None if longest >= LONGEST else longest.total_seconds()


def _told(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
