"""Keys, and who holds them.

A key is `duly_` and 256 random bits; the store keeps its SHA-256, which is enough
to recognise it and useless to whoever reads it.
"""

import hashlib
import secrets
from collections.abc import Iterable

from duly.errors import NotFound
from duly.model.tenant import Credential, Scope, actor_of
from duly.store.database import Connection, load_statements
from duly.store.plans import plan_of

SQL = load_statements("tenants.sql")
ADMIN_SCOPES = frozenset({Scope.SUBMIT, Scope.READ, Scope.MANAGE, Scope.ADMIN})


def generate_key(kind: str = "duly") -> str:
    """Return a new secret; `kind` is the part by which people recognise it."""
    return f"{kind}_{secrets.token_urlsafe(32)}"


def digest(key: str) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


async def by_key(conn: Connection, key: str) -> Credential | None:
    """Return who holds `key`; None when it is unknown, expired or revoked."""
    row = await conn.fetchrow(SQL["by_key"], digest(key))
    if row is None:
        return None
    return Credential(
        tenant_id=row["tenant_id"],
        tenant=row["tenant"],
        user_id=row["user_id"],
        user=row["user"],
        scopes=frozenset(Scope(scope) for scope in row["scopes"]),
        plan=plan_of(row),
        key_id=row["key_id"],
        is_suspended=row["suspended_at"] is not None,
        actor=actor_of(row["tenant"], row["user"], row["service"], row["prefix"]),
    )


async def create_key(conn: Connection, tenant: str, user: str, scopes: Iterable[Scope]) -> str:
    """Make a key for a user of an existing tenant, and return it: the only time it is known."""
    key = generate_key()
    row = await conn.fetchrow(SQL["ensure_user"], tenant, user)
    if row is None:
        raise NotFound(f"There is no tenant {tenant!r}.")
    await conn.fetchval(
        SQL["add_key"], row["tenant_id"], row["id"], key[:12], digest(key), sorted(scopes)
    )
    return key


async def create_admin_key(conn: Connection) -> str:
    """Make a key of the tenant `default` that may do everything."""
    return await create_key(conn, "default", "admin", ADMIN_SCOPES)


async def has_admin_key(conn: Connection) -> bool:
    """Say whether any administrator's key is valid."""
    return bool(await conn.fetchval(SQL["has_admin_key"]))
