"""Tenants: who submits, under which plan, and with which key."""

from datetime import timedelta
from enum import StrEnum

import msgspec


class Scope(StrEnum):
    """What a key may do."""

    SUBMIT = "submit"
    READ = "read"
    MANAGE = "manage"
    ADMIN = "admin"
    NODE = "node"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's subscription: the defaults and bounds of its tasks."""

    name: str
    delay_tolerance: timedelta
    execution_cap: timedelta
    max_execution_cap: timedelta
    weight: int


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """Who is calling, as told by the key alone."""

    tenant_id: int
    tenant: str
    user_id: int | None
    user: str | None
    scopes: frozenset[Scope]
    plan: Plan
    node_id: int | None = None
