"""Creates, changes and revokes the keys of a tenant, with an entry in the audit log."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from duly.errors import Conflict, Forbidden, Invalid
from duly.model.requests.names import check_user
from duly.model.tenant import Credential, Scope
from duly.policy.grants import TENANT_SCOPES, grantable
from duly.server.accounts.administrators import (
    check_grant,
    check_reach,
    keeping_an_administrator,
    unknown_in_tenant,
)
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log, keys, tenants, users
from duly.store.accounts.keys import ChangedKey, LockedKey, NewKey
from duly.store.database import Connection, Database


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a new key; without a user or a service it belongs to the tenant as a whole."""

    scopes: frozenset[Scope]
    user: str | None = None
    service: str | None = None
    name: str | None = None
    lasts: timedelta | None = None


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a key: unset fields stay; null removes the name or the expiry."""

    scopes: frozenset[Scope] | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    lasts: timedelta | UnsetType | None = UNSET


class Keys:
    """The operations of a tenant's manager on its keys."""

    def __init__(self, database: Database, server_bus: ServerBus) -> None:
        self._database = database
        self._server_bus = server_bus

    async def create(self, credential: Credential, request: KeyRequest) -> tuple[int, str]:
        """Create a key, and return its id and its secret, which is not stored."""
        if request.user is not None and request.service is not None:
            raise Invalid(
                "service", "a key belongs to a user or to a service. Give only one of them."
            )
        if request.service is not None:
            check_user(request.service, "service")
        _check_scopes(credential, request.scopes)
        async with self._database.writing_for(credential.tenant_id) as conn:
            await tenants.hold(conn, credential.tenant_id)
            user_id = None
            if request.user is not None:
                user_id = await _ensure_user(conn, credential, request.user, request.scopes)
            key_id, secret = await keys.add(
                conn,
                NewKey(
                    tenant_id=credential.tenant_id,
                    user_id=user_id,
                    service=request.service,
                    name=request.name,
                    scopes=request.scopes,
                    lasts=request.lasts,
                    created_by=credential.actor,
                ),
            )
            details = _audit_details(key_id, request)
            await _record(conn, credential, "create", secret[: tenants.KEY_PREFIX_LENGTH], details)
        return key_id, secret

    async def update(
        self,
        credential: Credential,
        change: KeyChange,
        *,
        key_id: int | None = None,
        prefix: str | None = None,
    ) -> int:
        """Change a usable key, with immediate effect on every server; return its id."""
        if change.scopes is not UNSET:
            _check_scopes(credential, change.scopes)
        async with keeping_an_administrator(self._database, credential.tenant_id) as conn:
            old = await _lock(conn, credential, key_id, prefix)
            check_reach(credential, old.scopes, "key")
            # Otherwise a caller could act as a user for whom it may not create keys.
            check_reach(credential, old.user_scopes or frozenset(), "user")
            _check_usable(old)
            new = await keys.change(
                conn,
                old.id,
                name=old.name if change.name is UNSET else change.name,
                scopes=old.scopes if change.scopes is UNSET else change.scopes,
                lasts=change.lasts,
            )
            if details := _changed(old, new):
                await _record(conn, credential, "update", old.prefix, details)
        self._server_bus.broadcast(Hint(credentials=True))
        return old.id

    async def revoke(
        self, credential: Credential, *, key_id: int | None = None, prefix: str | None = None
    ) -> None:
        """Revoke a key, with immediate effect on every server."""
        async with keeping_an_administrator(self._database, credential.tenant_id) as conn:
            key = await _lock(conn, credential, key_id, prefix)
            check_reach(credential, key.scopes, "key")
            if key.revoked_at is None:
                await keys.revoke(conn, key.id)
                await _record(conn, credential, "revoke", key.prefix, {"id": str(key.id)})
        self._server_bus.broadcast(Hint(credentials=True))


async def _lock(
    conn: Connection, credential: Credential, key_id: int | None, prefix: str | None
) -> LockedKey:
    matches = await keys.lock(conn, credential.tenant_id, key_id=key_id, prefix=prefix)
    if not matches:
        # Echo no more than a prefix: the caller may have passed a whole key.
        raise unknown_in_tenant(
            credential, "key", key_id if prefix is None else prefix[: tenants.KEY_PREFIX_LENGTH]
        )
    if len(matches) > 1:
        raise Conflict("Several keys begin with this prefix. Give the ID of the key.")
    return matches[0]


def _check_scopes(credential: Credential, scopes: frozenset[Scope]) -> None:
    if not scopes:
        raise Invalid(
            "scopes", "it is empty, so the key could do nothing. Give at least one scope."
        )
    check_grant(credential, scopes)


def _check_usable(key: LockedKey) -> None:
    """Refuse to change a key that has ended or belongs to a login; raises Conflict."""
    if key.revoked_at is not None or key.has_expired:
        how = "has expired" if key.revoked_at is None else "is revoked"
        raise Conflict(f"The key {how} and cannot be changed. Create another one.")
    if key.is_login:
        raise Conflict("The key belongs to a login and ends with it. Create another one.")


async def _ensure_user(
    conn: Connection, credential: Credential, name: str, scopes: frozenset[Scope]
) -> int:
    """Return the id of a user, created if missing with at least the scopes of its key."""
    check_user(name, "user")
    if (user := await users.lock(conn, credential.tenant_id, name=name)) is not None:
        if wider := user.reach - grantable(credential.scopes):
            raise Forbidden(
                f"{name!r} has the scope {min(wider).value!r}, which your key lacks; "
                "only a key with that scope can create keys for this user.",
                scope=min(wider).value,
            )
        return user.id
    granted = scopes | (TENANT_SCOPES & grantable(credential.scopes))
    user_id = await users.add(conn, credential.tenant_id, name, granted)
    if user_id is None:
        raise Conflict(f"The user {name!r} is being created by another request. Try again.")
    await audit_log.record(
        conn,
        credential=credential,
        action="user.create",
        target=name,
        tenant_id=credential.tenant_id,
        details={"scopes": sorted(granted), "password": False},
    )
    return user_id


def _audit_details(key_id: int, request: KeyRequest) -> Mapping[str, object]:
    """Return the details of a new key for the audit log."""
    return {
        "id": str(key_id),
        "scopes": sorted(request.scopes),
        "user": request.user,
        "service": request.service,
        "expires_in": None if request.lasts is None else request.lasts.total_seconds(),
    }


def _changed(old: LockedKey, new: ChangedKey) -> Mapping[str, object]:
    """Return the changed fields, each with its old and new value."""
    fields = (
        ("name", old.name, new.name),
        ("scopes", sorted(old.scopes), sorted(new.scopes)),
        ("expires_at", old.expires_at, new.expires_at),
    )
    return {
        field: msgspec.to_builtins([before, after])
        for field, before, after in fields
        if before != after
    }


async def _record(
    conn: Connection,
    credential: Credential,
    verb: str,
    prefix: str,
    details: Mapping[str, object],
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=f"key.{verb}",
        target=prefix,
        tenant_id=credential.tenant_id,
        details=details,
    )
