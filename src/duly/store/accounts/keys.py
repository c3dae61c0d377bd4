"""Keys as people see them: by id or prefix, with who holds them; never the key itself."""

from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from duly.model.tenant import Scope
from duly.store.database import Connection, load_statements
from duly.store.tenants import PREFIX, digest, generate_key

SQL = load_statements("keys.sql")
NEWEST = 2**63 - 1
MOST_LOGINS = 20
"""How many logins of one user last at once; an older one ends when another begins."""


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is to be; it is held by a user, by a service, or by nobody in particular."""

    tenant_id: int
    scopes: frozenset[Scope]
    created_by: str
    user_id: int | None = None
    service: str | None = None
    name: str | None = None
    lasts: timedelta | None = None
    is_login: bool = False


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without what opens anything."""

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
        """Return whether it can be used: `active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.has_expired else "active"


class ChangedKey(msgspec.Struct, frozen=True):
    """What can be changed about a key."""

    name: str | None
    scopes: frozenset[Scope]
    expires_at: datetime | None


class LockedKey(ChangedKey, frozen=True):
    """What has to be known of a key before it is changed or revoked."""

    id: int
    prefix: str
    revoked_at: datetime | None
    is_login: bool
    has_expired: bool | None
    user_scopes: frozenset[Scope] | None
    """What the user may do who holds it, if one does."""


class KeyFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys are meant; all that is given must hold."""

    key_id: int | None = None
    prefix: str | None = None
    user: str | None = None
    service: str | None = None
    with_ended: bool = True


async def add(conn: Connection, new: NewKey) -> tuple[int, str]:
    """Store a new key, and return its id and itself: the only time it is known."""
    key = generate_key()
    made: int = await conn.fetchval(
        SQL["add"],
        new.tenant_id,
        new.user_id,
        new.service,
        new.name,
        key[:PREFIX],
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
    before: int = NEWEST,
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
    """Return the keys that are meant; nobody else changes them before the commit."""
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
    """Change a key that is locked, and return how it is now; `lasts` unset leaves its end."""
    stays = lasts is UNSET
    row = await conn.fetchrow(
        SQL["change"], key_id, name, sorted(scopes), stays, None if stays else lasts
    )
    return msgspec.convert(dict(row or {}), ChangedKey)


async def revoke(conn: Connection, key_id: int) -> None:
    """Let a key open nothing any more."""
    await conn.execute(SQL["revoke"], key_id)


async def end_login(conn: Connection, key_id: int) -> bool:
    """Revoke a key that was got by logging in; False when it was not."""
    return await conn.fetchval(SQL["end_login"], key_id) is not None


async def tidy_logins(conn: Connection, user_id: int) -> None:
    """Forget the logins of a user that have ended, and leave room for one more."""
    await conn.execute(SQL["tidy_logins"], user_id, MOST_LOGINS - 1)
