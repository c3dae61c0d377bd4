"""Administration of keys, by id or prefix; the key itself is returned only once."""

from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from duly.model.tenant import Scope
from duly.store.accounts.tenants import KEY_PREFIX_LENGTH, digest, generate_key
from duly.store.database import Connection, load_statements

SQL = load_statements("keys.sql")
MAX_ID = 2**63 - 1
MAX_LOGINS_PER_USER = 20
"""Concurrent logins of one user; a new login ends the oldest one."""


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be created, held by a user, by a service, or by nobody in particular."""

    tenant_id: int
    scopes: frozenset[Scope]
    created_by: str
    user_id: int | None = None
    service: str | None = None
    name: str | None = None
    lasts: timedelta | None = None
    is_login: bool = False


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: int
    prefix: str
    name: str | None
    user: str | None
    service: str | None
    scopes: frozenset[Scope]
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    is_login: bool
    has_expired: bool | None

    @property
    def status(self) -> str:
        """Return whether the key can be used: `active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.has_expired else "active"


class ChangedKey(msgspec.Struct, frozen=True):
    """The mutable attributes of a key."""

    name: str | None
    scopes: frozenset[Scope]
    expires_at: datetime | None


class LockedKey(ChangedKey, frozen=True):
    """A locked key, with what must be known before it is changed or revoked."""

    id: int
    prefix: str
    revoked_at: datetime | None
    is_login: bool
    has_expired: bool | None
    user_scopes: frozenset[Scope] | None
    """The scopes of the user who holds the key, if one does."""


class KeyFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects keys; all given conditions must hold."""

    key_id: int | None = None
    prefix: str | None = None
    user: str | None = None
    service: str | None = None
    with_ended: bool = True


async def add(conn: Connection, new: NewKey) -> tuple[int, str]:
    """Store a new key; return its id and the key itself, which is not known afterwards."""
    key = generate_key()
    made: int = await conn.fetchval(
        SQL["add"],
        new.tenant_id,
        new.user_id,
        new.service,
        new.name,
        key[:KEY_PREFIX_LENGTH],
        digest(key),
        sorted(new.scopes),
        new.lasts,
        new.created_by,
        new.is_login,
    )
    return made, key


async def read(
    conn: Connection,
    tenant_id: int,
    which: KeyFilter,
    *,
    before: int = MAX_ID,
    limit: int = 1,
) -> list[Key]:
    """Return keys of a tenant, newest first."""
    rows = await conn.fetch(
        SQL["read"],
        tenant_id,
        before,
        limit,
        which.key_id,
        which.prefix,
        which.user,
        which.service,
        which.with_ended,
    )
    return [msgspec.convert(dict(row), Key) for row in rows]


async def lock(
    conn: Connection, tenant_id: int, *, key_id: int | None = None, prefix: str | None = None
) -> list[LockedKey]:
    """Return the matching keys, locked against other changes until the commit."""
    rows = await conn.fetch(SQL["lock"], tenant_id, key_id, prefix)
    return [msgspec.convert(dict(row), LockedKey) for row in rows]


async def change(
    conn: Connection,
    key_id: int,
    *,
    name: str | None,
    scopes: frozenset[Scope],
    lasts: timedelta | UnsetType | None,
) -> ChangedKey:
    """Change a locked key, and return its new values; `lasts` unset keeps the expiry."""
    stays = lasts is UNSET
    row = await conn.fetchrow(
        SQL["change"], key_id, name, sorted(scopes), stays, None if stays else lasts
    )
    return msgspec.convert(dict(row or {}), ChangedKey)


async def revoke(conn: Connection, key_id: int) -> None:
    """Revoke a key."""
    await conn.execute(SQL["revoke"], key_id)


async def end_login(conn: Connection, key_id: int) -> bool:
    """Revoke a key that was issued by a login; False if it was not."""
    return await conn.fetchval(SQL["end_login"], key_id) is not None


async def prune_logins(conn: Connection, user_id: int) -> None:
    """Delete the ended logins of a user, and leave room for one more."""
    await conn.execute(SQL["prune_logins"], user_id, MAX_LOGINS_PER_USER - 1)
