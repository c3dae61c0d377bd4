"""What both clients can do about tenants, users, keys and the audit log."""

from collections.abc import Sequence
from typing import TypeVar, Unpack

from duly.client import people_calls as calls
from duly.client.call import Call
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

T = TypeVar("T")


class PeopleMethods:
    """Tenants, users, keys and the audit log."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_tenants(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Tenant]:
        """Return a page of the tenants; without the scope admin, the own one."""
        return self._send(calls.list_tenants(limit, cursor))

    def get_tenant(self, tenant: str) -> Tenant:
        """Return a tenant, by its name or its id."""
        return self._send(calls.get_tenant(tenant))

    def create_tenant(self, name: str, plan: str | None = None) -> Tenant:
        """Make a tenant; without a plan it is `free`."""
        return self._send(calls.create_tenant(name, plan))

    def update_tenant(
        self, tenant: str, *, name: str | None = None, plan: str | None = None
    ) -> Tenant:
        """Give a tenant another name or plan."""
        return self._send(calls.update_tenant(tenant, name, plan))

    def suspend_tenant(self, tenant: str) -> Tenant:
        """Let a tenant look and do nothing else; nothing of it starts."""
        return self._send(calls.suspend_tenant(tenant))

    def resume_tenant(self, tenant: str) -> Tenant:
        """Let a suspended tenant go on where it was."""
        return self._send(calls.resume_tenant(tenant))

    def remove_tenant(self, tenant: str) -> None:
        """Remove a tenant without live tasks for good, with its users and keys."""
        self._send(calls.remove_tenant(tenant))

    def list_users(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[User]:
        """Return a page of the users of a tenant."""
        return self._send(calls.list_users(tenant, limit, cursor))

    def get_user(self, user: str, *, tenant: str | None = None) -> User:
        """Return a user, by its name or its id."""
        return self._send(calls.get_user(user, tenant))

    def create_user(
        self,
        name: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Make a user; without a password it holds keys and cannot log in."""
        return self._send(calls.create_user(name, password, scopes, tenant))

    def update_user(
        self,
        user: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Change the password of a user, which ends its logins, or its scopes."""
        return self._send(calls.update_user(user, password, scopes, tenant))

    def remove_user(self, user: str, *, tenant: str | None = None) -> None:
        """Remove a user, and revoke its keys."""
        self._send(calls.remove_user(user, tenant))

    def list_keys(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **which: Unpack[KeyFilter],
    ) -> Page[Key]:
        """Return a page of the keys that `which` means; all=True includes those that ended."""
        return self._send(calls.list_keys(which, tenant, limit, cursor))

    def get_key(self, key: str, *, tenant: str | None = None) -> Key:
        """Return what is known of a key, by its id or its prefix."""
        return self._send(calls.get_key(key, tenant))

    def create_key(
        self, scopes: Sequence[str], *, tenant: str | None = None, **fields: Unpack[KeyFields]
    ) -> NewKey:
        """Make a key, and return it: the only time it is told."""
        return self._send(calls.create_key(scopes, fields, tenant))

    def update_key(
        self, key: str, *, tenant: str | None = None, **change: Unpack[KeyChange]
    ) -> Key:
        """Change the scopes, the name or the end of a key; what is not named stays."""
        return self._send(calls.update_key(key, change, tenant))

    def revoke_key(self, key: str, *, tenant: str | None = None) -> None:
        """Let a key open nothing any more, on every server in a moment."""
        self._send(calls.revoke_key(key, tenant))

    def log_in(self, tenant: str, user: str, password: str) -> NewKey:
        """Return a key for a password; it lasts some hours, or until `log_out`."""
        return self._send(calls.log_in(tenant, user, password))

    def log_out(self) -> None:
        """Revoke the key of this client, which came of a login."""
        self._send(calls.log_out())

    def read_audit(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **which: Unpack[AuditFilter],
    ) -> Page[AuditEntry]:
        """Return a page of who did what, newest first."""
        return self._send(calls.read_audit(which, tenant, limit, cursor))


class AsyncPeopleMethods:
    """The same with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_tenants(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Tenant]:
        """Return a page of the tenants; without the scope admin, the own one."""
        return await self._send(calls.list_tenants(limit, cursor))

    async def get_tenant(self, tenant: str) -> Tenant:
        """Return a tenant, by its name or its id."""
        return await self._send(calls.get_tenant(tenant))

    async def create_tenant(self, name: str, plan: str | None = None) -> Tenant:
        """Make a tenant; without a plan it is `free`."""
        return await self._send(calls.create_tenant(name, plan))

    async def update_tenant(
        self, tenant: str, *, name: str | None = None, plan: str | None = None
    ) -> Tenant:
        """Give a tenant another name or plan."""
        return await self._send(calls.update_tenant(tenant, name, plan))

    async def suspend_tenant(self, tenant: str) -> Tenant:
        """Let a tenant look and do nothing else; nothing of it starts."""
        return await self._send(calls.suspend_tenant(tenant))

    async def resume_tenant(self, tenant: str) -> Tenant:
        """Let a suspended tenant go on where it was."""
        return await self._send(calls.resume_tenant(tenant))

    async def remove_tenant(self, tenant: str) -> None:
        """Remove a tenant without live tasks for good, with its users and keys."""
        await self._send(calls.remove_tenant(tenant))

    async def list_users(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[User]:
        """Return a page of the users of a tenant."""
        return await self._send(calls.list_users(tenant, limit, cursor))

    async def get_user(self, user: str, *, tenant: str | None = None) -> User:
        """Return a user, by its name or its id."""
        return await self._send(calls.get_user(user, tenant))

    async def create_user(
        self,
        name: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Make a user; without a password it holds keys and cannot log in."""
        return await self._send(calls.create_user(name, password, scopes, tenant))

    async def update_user(
        self,
        user: str,
        *,
        password: str | None = None,
        scopes: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> User:
        """Change the password of a user, which ends its logins, or its scopes."""
        return await self._send(calls.update_user(user, password, scopes, tenant))

    async def remove_user(self, user: str, *, tenant: str | None = None) -> None:
        """Remove a user, and revoke its keys."""
        await self._send(calls.remove_user(user, tenant))

    async def list_keys(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **which: Unpack[KeyFilter],
    ) -> Page[Key]:
        """Return a page of the keys that `which` means; all=True includes those that ended."""
        return await self._send(calls.list_keys(which, tenant, limit, cursor))

    async def get_key(self, key: str, *, tenant: str | None = None) -> Key:
        """Return what is known of a key, by its id or its prefix."""
        return await self._send(calls.get_key(key, tenant))

    async def create_key(
        self, scopes: Sequence[str], *, tenant: str | None = None, **fields: Unpack[KeyFields]
    ) -> NewKey:
        """Make a key, and return it: the only time it is told."""
        return await self._send(calls.create_key(scopes, fields, tenant))

    async def update_key(
        self, key: str, *, tenant: str | None = None, **change: Unpack[KeyChange]
    ) -> Key:
        """Change the scopes, the name or the end of a key; what is not named stays."""
        return await self._send(calls.update_key(key, change, tenant))

    async def revoke_key(self, key: str, *, tenant: str | None = None) -> None:
        """Let a key open nothing any more, on every server in a moment."""
        await self._send(calls.revoke_key(key, tenant))

    async def log_in(self, tenant: str, user: str, password: str) -> NewKey:
        """Return a key for a password; it lasts some hours, or until `log_out`."""
        return await self._send(calls.log_in(tenant, user, password))

    async def log_out(self) -> None:
        """Revoke the key of this client, which came of a login."""
        await self._send(calls.log_out())

    async def read_audit(
        self,
        *,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        **which: Unpack[AuditFilter],
    ) -> Page[AuditEntry]:
        """Return a page of who did what, newest first."""
        return await self._send(calls.read_audit(which, tenant, limit, cursor))
