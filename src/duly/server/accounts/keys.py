"""Makes, changes and revokes the keys of a tenant, and writes down who did."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from duly.errors import Conflict, Forbidden, Invalid
from duly.model.names import check_user
from duly.model.tenant import Credential, Scope
from duly.policy.grants import OF_A_TENANT, grantable
from duly.server.administrators import check_grant, check_reach, keeping_one, unknown
from duly.server.herald import Herald
from duly.server.news import News
from duly.store import audit_log, keys, tenants, users
from duly.store.database import Connection, Database
from duly.store.keys import ChangedKey, LockedKey, NewKey


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is to be; without a user or a service nobody in particular holds it."""

    scopes: frozenset[Scope]
    user: str | None = None
    service: str | None = None
    name: str | None = None
    lasts: timedelta | None = None


class KeyChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different about a key: what is unset stays, null is no name, or no end."""

    scopes: frozenset[Scope] | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    lasts: timedelta | UnsetType | None = UNSET


class Keys:
    """What whoever manages a tenant does to its keys."""

    def __init__(self, database: Database, herald: Herald) -> None:
        self._database = database
        self._herald = herald

    async def create(self, credential: Credential, asked: KeyRequest) -> tuple[int, str]:
        """Make a key, and return its id and itself: the only time it is known."""
        if asked.user is not None and asked.service is not None:
            raise Invalid("service", "A key belongs to a user or to a service, not to both.")
        if asked.service is not None:
            check_user(asked.service, "service")
        _check_scopes(credential, asked.scopes)
        async with self._database.writing_for(credential.tenant_id) as conn:
            await tenants.hold(conn, credential.tenant_id)
            user_id = None
            if asked.user is not None:
                user_id = await _ensure_user(conn, credential, asked.user, asked.scopes)
            made, key = await keys.add(
                conn,
                NewKey(
                    tenant_id=credential.tenant_id,
                    user_id=user_id,
                    service=asked.service,
                    name=asked.name,
                    scopes=asked.scopes,
                    lasts=asked.lasts,
                    created_by=credential.actor,
                ),
            )
            await _record(conn, credential, "create", key[: tenants.PREFIX], _told(made, asked))
        return made, key

    async def update(
        self,
        credential: Credential,
        change: KeyChange,
        *,
        key_id: int | None = None,
        prefix: str | None = None,
    ) -> int:
        """Change a key that can be used, on every server in a moment, and return its id."""
        if change.scopes is not UNSET:
            _check_scopes(credential, change.scopes)
        async with keeping_one(self._database, credential.tenant_id) as conn:
            old = await _lock(conn, credential, key_id, prefix)
            check_reach(credential, old.scopes, "key")
            # Or one could act as a user for whom one may make no key.
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
        self._herald.announce(News(credentials=True))
        return old.id

    async def revoke(
        self, credential: Credential, *, key_id: int | None = None, prefix: str | None = None
    ) -> None:
        """Let a key open nothing any more, on every server in a moment."""
        async with keeping_one(self._database, credential.tenant_id) as conn:
            key = await _lock(conn, credential, key_id, prefix)
            check_reach(credential, key.scopes, "key")
            if key.revoked_at is None:
                await keys.revoke(conn, key.id)
                await _record(conn, credential, "revoke", key.prefix, {"id": str(key.id)})
        self._herald.announce(News(credentials=True))


async def _lock(
    conn: Connection, credential: Credential, key_id: int | None, prefix: str | None
) -> LockedKey:
    found = await keys.lock(conn, credential.tenant_id, key_id=key_id, prefix=prefix)
    if not found:
        # No more than a prefix: what was given may be a whole key.
        raise unknown(credential, "key", key_id if prefix is None else prefix[: tenants.PREFIX])
    if len(found) > 1:
        raise Conflict("More than one key begins like this; name it by its id.")
    return found[0]


def _check_scopes(credential: Credential, scopes: frozenset[Scope]) -> None:
    if not scopes:
        raise Invalid("scopes", "scopes is empty; such a key could do nothing.")
    check_grant(credential, scopes)


def _check_usable(key: LockedKey) -> None:
    """Refuse to change what has ended, or ends with something else; raises Conflict."""
    if key.revoked_at is not None or key.has_expired:
        how = "has expired" if key.revoked_at is None else "is revoked"
        raise Conflict(f"The key {how}, and stays so; create another one.")
    if key.is_login:
        raise Conflict("The key was got by logging in, and ends with that; create another one.")


async def _ensure_user(
    conn: Connection, credential: Credential, name: str, scopes: frozenset[Scope]
) -> int:
    """Return the id of a user; one that is new may do as much as its key, and more cannot hurt."""
    check_user(name, "user")
    if (found := await users.lock(conn, credential.tenant_id, name=name)) is not None:
        if wider := found.reach - grantable(credential.scopes):
            raise Forbidden(
                f"{name!r} has the scope {min(wider).value!r}, which your key has not; "
                "whoever has it makes keys for this user.",
                scope=min(wider).value,
            )
        return found.id
    may = scopes | (OF_A_TENANT & grantable(credential.scopes))
    made = await users.add(conn, credential.tenant_id, name, may)
    if made is None:
        raise Conflict(f"The user {name!r} is being created by somebody else; try again.")
    await audit_log.record(
        conn,
        credential=credential,
        action="user.create",
        target=name,
        tenant_id=credential.tenant_id,
        details={"scopes": sorted(may), "password": False},
    )
    return made


def _told(key_id: int, asked: KeyRequest) -> Mapping[str, object]:
    """Return what the audit log says of a key that was made."""
    return {
        "id": str(key_id),
        "scopes": sorted(asked.scopes),
        "user": asked.user,
        "service": asked.service,
        "expires_in": None if asked.lasts is None else asked.lasts.total_seconds(),
    }


def _changed(old: LockedKey, new: ChangedKey) -> Mapping[str, object]:
    """Return what is different, each as it was and as it is."""
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
