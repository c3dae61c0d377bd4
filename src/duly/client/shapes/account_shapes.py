"""JSON types of tenants, users, keys, logins and the audit log."""

from collections.abc import Sequence
from typing import Any, TypedDict

from duly.client.shapes.task_shapes import Duration, Instant


class Tenant(TypedDict):
    """A tenant: submits tasks and is billed for them."""

    id: str
    name: str
    plan: str
    weight: int
    weight_override: int | None
    fair_users: bool
    share: float | None
    fair_share: float | None
    status: str
    users: int
    created_at: str
    suspended_at: str | None


class TenantChange(TypedDict, total=False):
    """Fields of a tenant that can be changed; a weight of None is that of its plan."""

    name: str | None
    plan: str | None
    weight: int | None
    fair_users: bool | None


class User(TypedDict):
    """A user of a tenant."""

    id: str
    name: str
    tenant: str
    scopes: list[str]
    has_password: bool
    keys: int
    created_at: str


class Key(TypedDict):
    """The metadata of an API key, without its secret."""

    id: str
    prefix: str
    name: str | None
    tenant: str
    user: str | None
    service: str | None
    scopes: list[str]
    status: str
    login: bool
    created_at: str
    created_by: str | None
    expires_at: str | None
    revoked_at: str | None


class NewKey(Key):
    """A newly created key with its secret, which no other response has."""

    key: str


class AuditEntry(TypedDict):
    """An entry of the audit log; `tenant` is the tenant that the action concerns."""

    id: str
    at: str
    tenant: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]


class KeyFilter(TypedDict, total=False):
    """Filters for keys, combined with and."""

    user: str | None
    service: str | None
    prefix: str | None
    all: bool


class KeyFields(TypedDict, total=False):
    """Optional fields of a new key."""

    user: str | None
    service: str | None
    name: str | None
    expires_in: Duration | None


class KeyChange(TypedDict, total=False):
    """Fields of a key that can be changed; None clears the name or the expiry."""

    scopes: Sequence[str]
    name: str | None
    expires_in: Duration | None


class AuditFilter(TypedDict, total=False):
    """Filters for audit entries; `since` is a time, or a duration back from now such as "1h"."""

    actor: str | None
    action: str | None
    since: Instant | None
