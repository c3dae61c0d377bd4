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
    METRICS = "metrics"
    """Only `/metrics`: for a Prometheus server, whose key is in a file that many can read."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's subscription: the defaults and bounds of its tasks. None is no limit."""

    name: str
    delay_tolerance: timedelta
    """The default of a task."""
    execution_cap: timedelta
    """The default of a task."""
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
    """By kind, in the units of `Resources`; an absent kind has no limit."""
    max_waiting: int | None = None
    max_schedules: int | None = None
    tiers: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    """The queues that a task may request; None: all requestable ones."""
    max_delay_tolerance: timedelta | None = None
    tolerances: dict[str, float] = {}
    """Seconds by category, instead of `delay_tolerance`."""
    retention: timedelta | None = None
    """How long ended tasks are kept; None: as long as the server keeps history."""
    max_log_bytes: int | None = None
    max_result_bytes: int | None = None
    max_artifact_bytes: int | None = None
    """Per artifact."""
    artifact_bytes: int | None = None
    """Over all artifacts of a tenant."""
    cpu_quota: bool = False
    """Whether a task's cpu is capped at its request even on idle processors."""
    known_tiers: Mapping[str, Resources] = TIERS
    """The resources of each tier: built-in, an administrator's, and the tenant's own."""
    known_queues: Mapping[str, bool] = {}
    """Administrators' queues, and whether each is off-peak."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The identity and rights of a caller, as derived from its key."""

    tenant_id: int
    tenant: str
    user_id: int | None
    user: str | None
    scopes: frozenset[Scope]
    plan: Plan
    key_id: int | None = None
    is_suspended: bool = False
    """Whether its tenant is suspended: then it may only read."""
    fair_users: bool = False
    """Whether the users of its tenant divide the tenant's fair share."""
    node_id: int | None = None
    actor: str = "unknown"
    """The actor in the audit log, whichever tenant it acts for: `tenant/user`,
    `tenant/service:NAME`, or `key:PREFIX` for a key without a holder."""
    expires_in: timedelta | None = None
    """The remaining validity of the key at lookup; None if it does not expire."""


def actor_of(tenant: str, user: str | None, service: str | None, prefix: str) -> str:
    """Return the name of a key's holder in the audit log."""
    if user is not None:
        return f"{tenant}/{user}"
    return f"key:{prefix}" if service is None else f"{tenant}/service:{service}"
