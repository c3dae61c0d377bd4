"""What tenants, users and keys look like from outside, and how they are named in a path."""

from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request

from duly.api.auth import acting_for
from duly.api.query import query_of
from duly.api.reading import ID, overseeing
from duly.api.routes import parts_of
from duly.errors import Forbidden, Invalid, NotFound
from duly.model.request import check_text
from duly.model.tenant import Credential, Scope
from duly.store import audit_log, keys, tenants, users, views
from duly.store.views import LARGEST_ID


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Who submits and is billed; `suspended` may look and nothing else."""

    id: str
    name: str
    plan: str
    status: str
    users: int
    created_at: datetime
    suspended_at: datetime | None


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody of a tenant; `scopes` is what whoever logs in may do."""

    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    has_password: bool
    keys: int
    created_at: datetime


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without what opens anything; `status` is active, expired or revoked."""

    id: str
    prefix: str
    name: str | None
    tenant: str
    user: str | None
    service: str | None
    scopes: list[Scope]
    status: str
    login: bool
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(Key, frozen=True, kw_only=True):
    """A key that was just made: the only time it is shown."""

    key: str


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to what; `tenant` is whom it concerns."""

    id: str
    at: datetime
    tenant: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]


def tenant_answer(found: tenants.Tenant) -> Tenant:
    """Return what is told of a tenant."""
    return Tenant(
        id=str(found.public_id),
        name=found.name,
        plan=found.plan,
        status="active" if found.suspended_at is None else "suspended",
        users=found.users,
        created_at=found.created_at,
        suspended_at=found.suspended_at,
    )


def user_answer(found: users.User, tenant: str) -> User:
    """Return what is told of a user."""
    return User(
        id=str(found.public_id),
        name=found.name,
        tenant=tenant,
        scopes=sorted(found.scopes),
        has_password=found.has_password,
        keys=found.keys,
        created_at=found.created_at,
    )


def key_answer(found: keys.Key, tenant: str) -> Key:
    """Return what is told of a key."""
    return Key(**_key_fields(found, tenant))


def new_key_answer(found: keys.Key, tenant: str, key: str) -> NewKey:
    """Return what is told of a key when it is made."""
    return NewKey(**_key_fields(found, tenant), key=key)


def audit_answer(entry: audit_log.Entry) -> AuditEntry:
    """Return what is told of a change."""
    fields = msgspec.structs.asdict(entry) | {"id": str(entry.id)}
    return AuditEntry(**fields)


async def for_tenant(request: Request, credential: Credential, name: str | None) -> Credential:
    """Return the caller as one who acts for the tenant that its body names, if it may."""
    if name is None:
        return credential
    if Scope.ADMIN not in credential.scopes:
        raise Forbidden("Only a key with the scope 'admin' may name a tenant.", scope="admin")
    named = query_of(request).one("tenant")
    if named not in (None, name):
        raise Invalid("tenant", "The address names another tenant than the body.")
    if name == credential.tenant:
        return credential
    async with overseeing(parts_of(request)) as conn:
        found = await views.tenant_by_name(conn, check_text(name, "tenant"))
    if found is None:
        raise NotFound(f"There is no tenant {name[:60]!r}.")
    return acting_for(credential, found)


def scopes_of(names: list[str]) -> frozenset[Scope]:
    """Read scopes; raises Invalid for one that does not exist."""
    for name in names:
        if name not in list(Scope):
            known = ", ".join(Scope)
            raise Invalid("scopes", f"There is no scope {name[:40]!r}; there are {known}.")
    return frozenset(Scope(name) for name in names)


def id_or_name(request: Request) -> tuple[int | None, str | None]:
    """Return what the path names a thing by: digits are an id, all else a name."""
    text = check_text(request.path_params["id"], "id")
    # An id too large to be one is the id of nothing.
    return (min(int(text), LARGEST_ID), None) if ID.fullmatch(text) else (None, text)


def _key_fields(found: keys.Key, tenant: str) -> dict[str, Any]:
    return {
        "id": str(found.id),
        "prefix": found.prefix,
        "name": found.name,
        "tenant": tenant,
        "user": found.user,
        "service": found.service,
        "scopes": sorted(found.scopes),
        "status": found.status,
        "login": found.is_login,
        "created_at": found.created_at,
        "created_by": found.created_by,
        "expires_at": found.expires_at,
        "revoked_at": found.revoked_at,
    }
