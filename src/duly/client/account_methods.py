"""The methods of both clients for tenants, users, keys and the audit log."""

from collections.abc import Sequence
from typing import TypeVar, Unpack

from duly.client.call import Call
from duly.client.calls import account_calls as calls
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

T = TypeVar("T")


class AccountMethods:
    """Methods for tenants, users, keys and the audit log."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_tenants(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Tenant]:
        """Return a page of tenants; without the scope `admin`, only the caller's own."""
        return self._send(calls.list_tenants(limit, cursor))

    def get_tenant(self, tenant: str) -> Tenant:
        """Return a tenant by name or id."""
        return self._send(calls.get_tenant(tenant))

    def create_tenant(
        self,
        name: str,
        plan: str | None = None,
        *,
        weight: int | None = None,
        fair_users: bool = False,
    ) -> Tenant:
        """Create a tenant on `plan`, by default `free`; its weight is by default the plan's.

        With `fair_users`, its users divide its fair share between them.
        """
        return self._send(calls.create_tenant(name, plan, weight, fair_users=fair_users))

    def update_tenant(self, tenant: str, **change: Unpack[TenantChange]) -> Tenant:
        """Change fields of a tenant; a weight of None restores that of its plan."""
        return self._send(calls.update_tenant(tenant, change))

    def suspend_tenant(self, tenant: str) -> Tenant:
        """Suspend a tenant: it becomes read-only and none of its tasks start."""
        return self._send(calls.suspend_tenant(tenant))

    def resume_tenant(self, tenant: str) -> Tenant:
        """Lift the suspension of a tenant; its waiting tasks may start again."""
        return self._send(calls.resume_tenant(tenant))

    def remove_tenant(self, tenant: str) -> None:
        """Remove a tenant permanently, with its users and keys.

        Raises Conflict while the tenant has live tasks.
        """
        self._send(calls.remove_tenant(tenant))

    def list_users(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[User]:
        """Return a page of a tenant's users."""
        return self._send(calls.list_users(tenant, limit, cursor))

    def get_user(self, user: str, *, tenant: str | None = None) -> User:
        """Return a user by name or id."""
        return self._send(calls.get_user(user, tenant))

    def create_user(
        self,
        name: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Create a user; without a password it can hold keys but cannot log in."""
        return self._send(calls.create_user(name, password, scopes, tenant))

    def update_user(
        self,
        user: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Change a user's password or scopes; a new password ends the user's logins."""
        return self._send(calls.update_user(user, password, scopes, tenant))

    def remove_user(self, user: str, *, tenant: str | None = None) -> None:
        """Remove a user and revoke its keys."""
        self._send(calls.remove_user(user, tenant))

    def list_keys(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[KeyFilter],
    ) -> Page[Key]:
        """Return a page of the keys that match `filters`.

        `all=True` includes revoked and expired keys.
        """
        return self._send(calls.list_keys(filters, tenant, limit, cursor))

    def get_key(self, key: str, *, tenant: str | None = None) -> Key:
        """Return the metadata of a key by id or prefix; never the key itself."""
        return self._send(calls.get_key(key, tenant))

    def create_key(
        self, scopes: Sequence[str], *, tenant: str | None = None, **fields: Unpack[KeyFields]
    ) -> NewKey:
        """Create a key and return it. The secret is in this response only."""
        return self._send(calls.create_key(scopes, fields, tenant))

    def update_key(
        self, key: str, *, tenant: str | None = None, **change: Unpack[KeyChange]
    ) -> Key:
        """Change the scopes, name or expiry of a key; fields not given keep their values."""
        return self._send(calls.update_key(key, change, tenant))

    def revoke_key(self, key: str, *, tenant: str | None = None) -> None:
        """Revoke a key; every server rejects it within moments."""
        self._send(calls.revoke_key(key, tenant))

    def log_in(self, tenant: str, user: str, password: str) -> NewKey:
        """Exchange a password for a key that is valid for some hours, or until `log_out`."""
        return self._send(calls.log_in(tenant, user, password))

    def log_out(self) -> None:
        """Revoke this client's key, which must come from `log_in`."""
        self._send(calls.log_out())

    def read_audit(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[AuditFilter],
    ) -> Page[AuditEntry]:
        """Return a page of audit log entries, newest first."""
        return self._send(calls.read_audit(filters, tenant, limit, cursor))


class AsyncAccountMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_tenants(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Tenant]:
        """Return a page of tenants; without the scope `admin`, only the caller's own."""
        return await self._send(calls.list_tenants(limit, cursor))

    async def get_tenant(self, tenant: str) -> Tenant:
        """Return a tenant by name or id."""
        return await self._send(calls.get_tenant(tenant))

    async def create_tenant(
        self,
        name: str,
        plan: str | None = None,
        *,
        weight: int | None = None,
        fair_users: bool = False,
    ) -> Tenant:
        """Create a tenant on `plan`, by default `free`; its weight is by default the plan's.

        With `fair_users`, its users divide its fair share between them.
        """
        return await self._send(calls.create_tenant(name, plan, weight, fair_users=fair_users))

    async def update_tenant(self, tenant: str, **change: Unpack[TenantChange]) -> Tenant:
        """Change fields of a tenant; a weight of None restores that of its plan."""
        return await self._send(calls.update_tenant(tenant, change))

    async def suspend_tenant(self, tenant: str) -> Tenant:
        """Suspend a tenant: it becomes read-only and none of its tasks start."""
        return await self._send(calls.suspend_tenant(tenant))

    async def resume_tenant(self, tenant: str) -> Tenant:
        """Lift the suspension of a tenant; its waiting tasks may start again."""
        return await self._send(calls.resume_tenant(tenant))

    async def remove_tenant(self, tenant: str) -> None:
        """Remove a tenant permanently, with its users and keys.

        Raises Conflict while the tenant has live tasks.
        """
        await self._send(calls.remove_tenant(tenant))

    async def list_users(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[User]:
        """Return a page of a tenant's users."""
        return await self._send(calls.list_users(tenant, limit, cursor))

    async def get_user(self, user: str, *, tenant: str | None = None) -> User:
        """Return a user by name or id."""
        return await self._send(calls.get_user(user, tenant))

    async def create_user(
        self,
        name: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Create a user; without a password it can hold keys but cannot log in."""
        return await self._send(calls.create_user(name, password, scopes, tenant))

    async def update_user(
        self,
        user: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Change a user's password or scopes; a new password ends the user's logins."""
        return await self._send(calls.update_user(user, password, scopes, tenant))

    async def remove_user(self, user: str, *, tenant: str | None = None) -> None:
        """Remove a user and revoke its keys."""
        await self._send(calls.remove_user(user, tenant))

    async def list_keys(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[KeyFilter],
    ) -> Page[Key]:
        """Return a page of the keys that match `filters`.

        `all=True` includes revoked and expired keys.
        """
        return await self._send(calls.list_keys(filters, tenant, limit, cursor))

    async def get_key(self, key: str, *, tenant: str | None = None) -> Key:
        """Return the metadata of a key by id or prefix; never the key itself."""
        return await self._send(calls.get_key(key, tenant))

    async def create_key(
        self, scopes: Sequence[str], *, tenant: str | None = None, **fields: Unpack[KeyFields]
    ) -> NewKey:
        """Create a key and return it. The secret is in this response only."""
        return await self._send(calls.create_key(scopes, fields, tenant))

    async def update_key(
        self, key: str, *, tenant: str | None = None, **change: Unpack[KeyChange]
    ) -> Key:
        """Change the scopes, name or expiry of a key; fields not given keep their values."""
        return await self._send(calls.update_key(key, change, tenant))

    async def revoke_key(self, key: str, *, tenant: str | None = None) -> None:
        """Revoke a key; every server rejects it within moments."""
        await self._send(calls.revoke_key(key, tenant))

    async def log_in(self, tenant: str, user: str, password: str) -> NewKey:
        """Exchange a password for a key that is valid for some hours, or until `log_out`."""
        return await self._send(calls.log_in(tenant, user, password))

    async def log_out(self) -> None:
        """Revoke this client's key, which must come from `log_in`."""
        await self._send(calls.log_out())

    async def read_audit(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[AuditFilter],
    ) -> Page[AuditEntry]:
        """Return a page of audit log entries, newest first."""
        return await self._send(calls.read_audit(filters, tenant, limit, cursor))
