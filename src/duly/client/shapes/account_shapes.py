"""The shapes of tenants, users, keys, logins and the audit log, as types for JSON."""

from collections.abc import Sequence
from typing import Any, TypedDict

from duly.client.shapes import Duration, Instant


class Tenant(TypedDict):
    """Who submits and is billed."""

    id: str
    name: str
    plan: str
    status: str
    users: int
    created_at: str
    suspended_at: str | None


class User(TypedDict):
    """Somebody of a tenant."""

    id: str
    name: str
    tenant: str
    scopes: list[str]
    has_password: bool
    keys: int
    created_at: str


class Key(TypedDict):
    """A key, without what opens anything."""

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
    """A key that was just made: the only time it is told."""

    key: str


class AuditEntry(TypedDict):
    """Who did what to what; `tenant` is whom it concerns."""

    id: str
    at: str
    tenant: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]


class KeyFilter(TypedDict, total=False):
    """Which keys are meant; all that is given must hold."""

    user: str | None
    service: str | None
    prefix: str | None
    all: bool


class KeyFields(TypedDict, total=False):
    """What may be said of a new key beside its scopes."""

    user: str | None
    service: str | None
    name: str | None
    expires_in: Duration | None


class KeyChange(TypedDict, total=False):
    """What may be changed about a key; None is no name, or no end."""

    scopes: Sequence[str]
    name: str | None
    expires_in: Duration | None


class AuditFilter(TypedDict, total=False):
    """Which entries are meant; `since` is a time, or how long ago, as "1h"."""

    actor: str | None
    action: str | None
    since: Instant | None
