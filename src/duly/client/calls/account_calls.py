"""The calls of the API about tenants, users, keys and the audit log.

Administrators name the tenant that is meant; for everybody else it is the own one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from duly.client.call import Call, encode, instant, parse_json
from duly.client.calls import _for, _get, _page, _segment
from duly.client.people_shapes import (
    AuditEntry,
    AuditFilter,
    Key,
    KeyChange,
    KeyFields,
    KeyFilter,
    NewKey,
    Tenant,
    User,
)
from duly.client.shapes import Page


def list_tenants(limit: int | None, cursor: str | None) -> Call[Page[Tenant]]:
    """Ask for a page of the tenants."""
    return _get("/v1/tenants", _page(limit, cursor))


def get_tenant(tenant: str) -> Call[Tenant]:
    """Ask for one tenant."""
    return _get(_tenant(tenant))


def create_tenant(name: str, plan: str | None) -> Call[Tenant]:
    """Make a tenant. Sent twice, the second would find it there."""
    return Call("POST", "/v1/tenants", parse_json, body=_body(name=name, plan=plan))


def update_tenant(tenant: str, name: str | None, plan: str | None) -> Call[Tenant]:
    """Change a tenant; with a new name, a repetition would not find it any more."""
    body = _body(name=name, plan=plan)
    return Call("PATCH", _tenant(tenant), parse_json, body=body, repeatable=name is None)


def suspend_tenant(tenant: str) -> Call[Tenant]:
    """Let a tenant look and do nothing else."""
    return Call("POST", f"{_tenant(tenant)}/suspend", parse_json, repeatable=True)


def resume_tenant(tenant: str) -> Call[Tenant]:
    """Let a suspended tenant go on."""
    return Call("POST", f"{_tenant(tenant)}/resume", parse_json, repeatable=True)


def remove_tenant(tenant: str) -> Call[None]:
    """Remove a tenant for good."""
    return Call("DELETE", _tenant(tenant), lambda body: None)


def list_users(tenant: str | None, limit: int | None, cursor: str | None) -> Call[Page[User]]:
    """Ask for a page of the users."""
    return _get("/v1/users", [*_for(tenant), *_page(limit, cursor)])


def get_user(user: str, tenant: str | None) -> Call[User]:
    """Ask for one user."""
    return _get(_user(user), _for(tenant))


def create_user(
    name: str, password: str | None, scopes: Sequence[str] | None, tenant: str | None
) -> Call[User]:
    """Make a user. Sent twice, the second would find it there."""
    body = _body(name=name, password=password, scopes=_list(scopes))
    return Call("POST", "/v1/users", parse_json, query=_for(tenant), body=body)


def update_user(
    user: str, password: str | None, scopes: Sequence[str] | None, tenant: str | None
) -> Call[User]:
    """Change a user."""
    body = _body(password=password, scopes=_list(scopes))
    path, query = _user(user), _for(tenant)
    return Call("PATCH", path, parse_json, query=query, body=body, repeatable=True)


def remove_user(user: str, tenant: str | None) -> Call[None]:
    """Remove a user, and revoke its keys."""
    return Call("DELETE", _user(user), lambda body: None, query=_for(tenant))


def list_keys(
    which: KeyFilter, tenant: str | None, limit: int | None, cursor: str | None
) -> Call[Page[Key]]:
    """Ask for a page of the keys."""
    named = {name: which.get(name) for name in ("user", "service", "prefix")}
    query = [(name, str(value)) for name, value in named.items() if value is not None]
    if which.get("all"):
        query.append(("all", "true"))
    return _get("/v1/keys", [*_for(tenant), *query, *_page(limit, cursor)])


def get_key(key: str, tenant: str | None) -> Call[Key]:
    """Ask for one key, by its id or its prefix."""
    return _get(_key(key), _for(tenant))


def create_key(scopes: Sequence[str], fields: KeyFields, tenant: str | None) -> Call[NewKey]:
    """Make a key. Sent twice, there would be two."""
    body = _body(scopes=_list(scopes), **fields)
    return Call("POST", "/v1/keys", parse_json, query=_for(tenant), body=body)


def update_key(key: str, change: KeyChange, tenant: str | None) -> Call[Key]:
    """Change a key; what is not named stays, so that None says something."""
    path, query = _key(key), _for(tenant)
    return Call("PATCH", path, parse_json, query=query, body=encode(change), repeatable=True)


def revoke_key(key: str, tenant: str | None) -> Call[None]:
    """Let a key open nothing any more."""
    path, query = _key(key), _for(tenant)
    return Call("DELETE", path, lambda body: None, query=query, repeatable=True)


def log_in(tenant: str, user: str, password: str) -> Call[NewKey]:
    """Ask for a key with a password."""
    body = _body(tenant=tenant, user=user, password=password)
    return Call("POST", "/v1/login", parse_json, body=body)


def log_out() -> Call[None]:
    """Revoke the key of this very call, which came of a login."""
    return Call("POST", "/v1/logout", lambda body: None)


def read_audit(
    which: AuditFilter, tenant: str | None, limit: int | None, cursor: str | None
) -> Call[Page[AuditEntry]]:
    """Ask for a page of who did what."""
    named = {name: which.get(name) for name in ("actor", "action")}
    query = [(name, str(value)) for name, value in named.items() if value is not None]
    if (since := which.get("since")) is not None:
        query.append(("since", instant(since, "since")))
    return _get("/v1/audit", [*_for(tenant), *query, *_page(limit, cursor)])


def _body(**fields: Any) -> bytes:
    given: Mapping[str, Any] = {name: value for name, value in fields.items() if value is not None}
    return encode(given)


def _list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _tenant(tenant: str) -> str:
    return f"/v1/tenants/{_segment(tenant)}"


def _user(user: str) -> str:
    return f"/v1/users/{_segment(user)}"


def _key(key: str) -> str:
    return f"/v1/keys/{_segment(key)}"
