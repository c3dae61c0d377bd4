"""The calls about tenants, users, keys and the audit log.

Administrators may name a tenant; everyone else acts on their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from duly.client.call import Call, encode, format_instant, parse_json
from duly.client.calls.task_calls import _get, _page_query, _path_segment, _tenant_query
from duly.client.shapes.account_shapes import (
    AuditEntry,
    AuditFilter,
    Key,
    KeyChange,
    KeyFields,
    KeyFilter,
    NewKey,
    Tenant,
    TenantChange,
    User,
)
from duly.client.shapes.task_shapes import Page


def list_tenants(limit: int | None, cursor: str | None) -> Call[Page[Tenant]]:
    """List a page of tenants."""
    return _get("/v1/tenants", _page_query(limit, cursor))


def get_tenant(tenant: str) -> Call[Tenant]:
    """Get a tenant."""
    return _get(_tenant_path(tenant))


def create_tenant(
    name: str, plan: str | None, weight: int | None, *, fair_users: bool
) -> Call[Tenant]:
    """Create a tenant. Not repeatable: a second request would conflict."""
    body = _encode_fields(name=name, plan=plan, weight=weight, fair_users=fair_users or None)
    return Call("POST", "/v1/tenants", parse_json, body=body)


def update_tenant(tenant: str, change: TenantChange) -> Call[Tenant]:
    """Update a tenant. With a new name it is not repeatable: the old name would be gone."""
    path, repeatable = _tenant_path(tenant), change.get("name") is None
    return Call("PATCH", path, parse_json, body=encode(change), repeatable=repeatable)


def suspend_tenant(tenant: str) -> Call[Tenant]:
    """Suspend a tenant."""
    return Call("POST", f"{_tenant_path(tenant)}/suspend", parse_json, repeatable=True)


def resume_tenant(tenant: str) -> Call[Tenant]:
    """Lift the suspension of a tenant."""
    return Call("POST", f"{_tenant_path(tenant)}/resume", parse_json, repeatable=True)


def remove_tenant(tenant: str) -> Call[None]:
    """Remove a tenant permanently."""
    return Call("DELETE", _tenant_path(tenant), lambda body: None)


def list_users(tenant: str | None, limit: int | None, cursor: str | None) -> Call[Page[User]]:
    """List a page of users."""
    return _get("/v1/users", [*_tenant_query(tenant), *_page_query(limit, cursor)])


def get_user(user: str, tenant: str | None) -> Call[User]:
    """Get a user."""
    return _get(_user_path(user), _tenant_query(tenant))


def create_user(
    name: str, password: str | None, scopes: Sequence[str] | None, tenant: str | None
) -> Call[User]:
    """Create a user. Not repeatable: a second request would conflict."""
    body = _encode_fields(name=name, password=password, scopes=_as_list(scopes))
    return Call("POST", "/v1/users", parse_json, query=_tenant_query(tenant), body=body)


def update_user(
    user: str, password: str | None, scopes: Sequence[str] | None, tenant: str | None
) -> Call[User]:
    """Update a user."""
    body = _encode_fields(password=password, scopes=_as_list(scopes))
    path, query = _user_path(user), _tenant_query(tenant)
    return Call("PATCH", path, parse_json, query=query, body=body, repeatable=True)


def remove_user(user: str, tenant: str | None) -> Call[None]:
    """Remove a user and revoke its keys."""
    return Call("DELETE", _user_path(user), lambda body: None, query=_tenant_query(tenant))


def list_keys(
    filters: KeyFilter, tenant: str | None, limit: int | None, cursor: str | None
) -> Call[Page[Key]]:
    """List a page of keys."""
    optional_filters = {name: filters.get(name) for name in ("user", "service", "prefix")}
    query = [(name, str(value)) for name, value in optional_filters.items() if value is not None]
    if filters.get("all"):
        query.append(("all", "true"))
    return _get("/v1/keys", [*_tenant_query(tenant), *query, *_page_query(limit, cursor)])


def get_key(key: str, tenant: str | None) -> Call[Key]:
    """Get the metadata of a key by id or prefix."""
    return _get(_key_path(key), _tenant_query(tenant))


def create_key(scopes: Sequence[str], fields: KeyFields, tenant: str | None) -> Call[NewKey]:
    """Create a key. Not repeatable: there would be two."""
    body = _encode_fields(scopes=_as_list(scopes), **fields)
    return Call("POST", "/v1/keys", parse_json, query=_tenant_query(tenant), body=body)


def update_key(key: str, change: KeyChange, tenant: str | None) -> Call[Key]:
    """Update a key. Absent fields keep their values; None clears a field."""
    path, query = _key_path(key), _tenant_query(tenant)
    return Call("PATCH", path, parse_json, query=query, body=encode(change), repeatable=True)


def revoke_key(key: str, tenant: str | None) -> Call[None]:
    """Revoke a key."""
    path, query = _key_path(key), _tenant_query(tenant)
    return Call("DELETE", path, lambda body: None, query=query, repeatable=True)


def log_in(tenant: str, user: str, password: str) -> Call[NewKey]:
    """Exchange a password for a key."""
    body = _encode_fields(tenant=tenant, user=user, password=password)
    return Call("POST", "/v1/login", parse_json, body=body)


def log_out() -> Call[None]:
    """Revoke the key that this call is made with, which must come from a login."""
    return Call("POST", "/v1/logout", lambda body: None)


def read_audit(
    filters: AuditFilter, tenant: str | None, limit: int | None, cursor: str | None
) -> Call[Page[AuditEntry]]:
    """Read a page of the audit log."""
    optional_filters = {name: filters.get(name) for name in ("actor", "action")}
    query = [(name, str(value)) for name, value in optional_filters.items() if value is not None]
    if (since := filters.get("since")) is not None:
        query.append(("since", format_instant(since, "since")))
    return _get("/v1/audit", [*_tenant_query(tenant), *query, *_page_query(limit, cursor)])


def _encode_fields(**fields: Any) -> bytes:
    present_fields: Mapping[str, Any] = {
        name: value for name, value in fields.items() if value is not None
    }
    return encode(present_fields)


def _as_list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _tenant_path(tenant: str) -> str:
    return f"/v1/tenants/{_path_segment(tenant)}"


def _user_path(user: str) -> str:
    return f"/v1/users/{_path_segment(user)}"


def _key_path(key: str) -> str:
    return f"/v1/keys/{_path_segment(key)}"
