"""Tenants: who submits, under which plan, and with which key."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec

from duly.model.resources import TIERS, Resources


class Scope(StrEnum):
    """What a key may do."""

    SUBMIT = "submit"
    READ = "read"
    MANAGE = "manage"
    ADMIN = "admin"
    NODE = "node"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's subscription: the defaults and bounds of its tasks. None is no limit."""

    name: str
    delay_tolerance: timedelta
    """What a task has that asks for none."""
    execution_cap: timedelta
    """What a task has that asks for none."""
    max_execution_cap: timedelta
    weight: int
    price_class: str = "standard"
    price_per_task: Decimal = Decimal(0)
    price_per_cpu_hour: Decimal = Decimal(0)
    price_per_gib_hour: Decimal = Decimal(0)
    tasks_per_hour: int | None = None
    burst: int | None = None
    max_running: int | None = None
    max_resources: dict[str, int] | None = None
    """By kind, in the units of `Resources`; a kind that is left out has no limit."""
    max_waiting: int | None = None
    max_schedules: int | None = None
    tiers: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    """Which queues a task may ask for by name; None is all that can be asked for."""
    max_delay_tolerance: timedelta | None = None
    tolerances: dict[str, float] = {}
    """Seconds by category, instead of `delay_tolerance`."""
    retention: timedelta | None = None
    """How long what has ended is kept, if not as long as the server keeps history."""
    max_log_bytes: int | None = None
    max_result_bytes: int | None = None
    max_artifact_bytes: int | None = None
    """Of one artifact."""
    artifact_bytes: int | None = None
    """Of all that a tenant has."""
    cpu_quota: bool = False
    """Whether a task gets no more cpu than it asked for, even where processors are idle."""
    known_tiers: Mapping[str, Resources] = TIERS
    """What names of tiers stand for: Duly's own, an administrator's, and the tenant's own."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """Who is calling, as told by the key alone."""

    tenant_id: int
    tenant: str
    user_id: int | None
    user: str | None
    scopes: frozenset[Scope]
    plan: Plan
    key_id: int | None = None
    is_suspended: bool = False
    """Whether its tenant is suspended: then it may only read."""
    node_id: int | None = None
    actor: str = "unknown"
    """Who it is in the audit log, whichever tenant it acts for: `tenant/user`,
    `tenant/service:NAME`, or `key:PREFIX` for a key that nobody holds."""
    lasts: timedelta | None = None
    """For how long its key was good when it was looked up; None if it does not expire."""


def actor_of(tenant: str, user: str | None, service: str | None, prefix: str) -> str:
    """Return what the audit log calls the holder of a key."""
    if user is not None:
        return f"{tenant}/{user}"
    return f"key:{prefix}" if service is None else f"{tenant}/service:{service}"
