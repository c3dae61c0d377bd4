"""The JSON of tenants, users and keys in responses, and helpers that their routes share."""

from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request

from duly.api.accounts.tenant_shares import TenantShares
from duly.api.auth import acting_for
from duly.api.requests.lookups import ID_PATTERN, cross_tenant_connection, not_found
from duly.api.requests.query import query_of
from duly.api.routes import components_of
from duly.errors import Forbidden, Invalid
from duly.model.requests.texts import check_text
from duly.model.tenant import Credential, Scope
from duly.model.wording import either
from duly.store.accounts import audit_log, keys, tenants, users
from duly.store.tasks import views
from duly.store.tasks.views import MAX_ID


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, which submits tasks and is billed; a suspended one may only read."""

    id: str
    name: str
    plan: str
    weight: int
    weight_override: int | None
    """The tenant's own weight; null: that of its plan."""
    fair_users: bool
    """Whether its users divide its fair share."""
    share: float | None
    """The fraction of the nodes that it holds; null if no node is ready."""
    fair_share: float | None
    """The fraction that it is entitled to; null if it has no tasks that may start."""
    status: str
    users: int
    created_at: datetime
    suspended_at: datetime | None


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user of a tenant; `scopes` are those of the keys it gets by logging in."""

    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    has_password: bool
    keys: int
    created_at: datetime


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret; `status` is active, expired or revoked."""

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
    """A new API key with its secret, which is only shown once."""

    key: str


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log; `tenant` is the tenant it concerns."""

    id: str
    at: datetime
    tenant: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]


def tenant_response(row: tenants.Tenant, shares: TenantShares) -> Tenant:
    """Return a tenant as JSON."""
    return Tenant(
        id=str(row.public_id),
        name=row.name,
        plan=row.plan,
        weight=row.weight,
        weight_override=row.weight_override,
        fair_users=row.fair_users,
        share=shares.share(row.id),
        fair_share=shares.fair_share(row.id),
        status="active" if row.suspended_at is None else "suspended",
        users=row.users,
        created_at=row.created_at,
        suspended_at=row.suspended_at,
    )


def user_response(row: users.User, tenant: str) -> User:
    """Return a user as JSON."""
    return User(
        id=str(row.public_id),
        name=row.name,
        tenant=tenant,
        scopes=sorted(row.scopes),
        has_password=row.has_password,
        keys=row.keys,
        created_at=row.created_at,
    )


def key_response(row: keys.Key, tenant: str) -> Key:
    """Return a key as JSON, without its secret."""
    return Key(**_key_fields(row, tenant))


def new_key_response(row: keys.Key, tenant: str, key: str) -> NewKey:
    """Return a new key as JSON, with its secret."""
    return NewKey(**_key_fields(row, tenant), key=key)


def audit_entry_response(entry: audit_log.Entry) -> AuditEntry:
    """Return an entry of the audit log as JSON."""
    fields = msgspec.structs.asdict(entry) | {"id": str(entry.id)}
    return AuditEntry(**fields)


async def act_for_tenant(request: Request, credential: Credential, name: str | None) -> Credential:
    """Return the credential for acting in the tenant that the body names; raises Forbidden."""
    if name is None:
        return credential
    if Scope.ADMIN not in credential.scopes:
        raise Forbidden(
            "Only a key with the scope 'admin' may act for another tenant.", scope="admin"
        )
    query_tenant = query_of(request).get("tenant")
    if query_tenant not in (None, name):
        raise Invalid("tenant", "the query and the body name different tenants. Name one.")
    if name == credential.tenant:
        return credential
    async with cross_tenant_connection(components_of(request)) as conn:
        tenant = await views.tenant_by_name(conn, check_text(name, "tenant"))
    if tenant is None:
        raise not_found("tenant", name)
    return acting_for(credential, tenant)


def parse_scopes(names: list[str]) -> frozenset[Scope]:
    """Return the scopes of these names; raises Invalid for an unknown one."""
    for name in names:
        if name not in list(Scope):
            raise Invalid("scopes", f"there is no scope {name[:40]!r}. Use {either(Scope)}.")
    return frozenset(Scope(name) for name in names)


def id_or_name(request: Request) -> tuple[int | None, str | None]:
    """Return the id or the name in the path; digits are an id."""
    text = check_text(request.path_params["id"], "id")
    # No object has the largest id.
    return (min(int(text), MAX_ID), None) if ID_PATTERN.fullmatch(text) else (None, text)


def _key_fields(row: keys.Key, tenant: str) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "prefix": row.prefix,
        "name": row.name,
        "tenant": tenant,
        "user": row.user,
        "service": row.service,
        "scopes": sorted(row.scopes),
        "status": row.status,
        "login": row.is_login,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }
