"""Tenants, and the lookup of credentials by key.

A key is `duly_` and 256 random bits; the store keeps its SHA-256, which is enough
to recognise it and useless to anybody who reads the table.
"""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime

import msgspec

from duly.errors import NotFound
from duly.model.tenant import Credential, Scope, actor_of
from duly.store.accounts.plans import plan_of
from duly.store.database import Connection, load_statements

SQL = load_statements("tenants.sql")
ADMIN_SCOPES = frozenset({Scope.SUBMIT, Scope.READ, Scope.MANAGE, Scope.ADMIN})
KEY_PREFIX_LENGTH = 12
"""Characters of a key that are stored in plain text, to identify it."""
MAX_ID = 2**63 - 1


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant; the public id comes from the clock, so it does not reveal how many there are."""

    id: int
    public_id: int
    name: str
    plan: str
    weight_override: int | None
    """Its own weight; None: its plan's."""
    fair_users: bool
    """Whether its users divide its fair share."""
    suspended_at: datetime | None
    created_at: datetime
    weight: int = 0
    """The effective one; like `users`, it is not read when the tenant is locked."""
    users: int = 0


class RemovedCounts(msgspec.Struct, frozen=True):
    """What was removed together with a tenant."""

    keys: int
    users: int
    reservations: int
    schedules: int


def generate_key(kind: str = "duly") -> str:
    """Return a new secret; `kind` is the part by which people recognise it."""
    return f"{kind}_{secrets.token_urlsafe(32)}"


def digest(key: str) -> bytes:
    """Return the SHA-256 under which a key is stored."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


async def by_key(conn: Connection, key: str) -> Credential | None:
    """Return the credential of `key`; None if it is unknown, expired or revoked."""
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
        fair_users=row["fair_users"],
        actor=actor_of(row["tenant"], row["user"], row["service"], row["prefix"]),
        expires_in=row["lasts"],
    )


async def create_key(conn: Connection, tenant: str, user: str, scopes: Iterable[Scope]) -> str:
    """Make a key for a user of an existing tenant, and return it: the only time it is known."""
    key = generate_key()
    wanted = sorted(scopes)
    row = await conn.fetchrow(SQL["ensure_user"], tenant, user, wanted)
    if row is None:
        raise NotFound(f"There is no tenant {tenant!r}.")
    await conn.fetchval(
        SQL["add_key"], row["tenant_id"], row["id"], key[:KEY_PREFIX_LENGTH], digest(key), wanted
    )
    return key


async def create_admin_key(conn: Connection) -> str:
    """Make a key of the tenant `default` that may do everything."""
    return await create_key(conn, "default", "admin", ADMIN_SCOPES)


async def has_admin_key(conn: Connection) -> bool:
    """Say whether any administrator's key is valid."""
    return bool(await conn.fetchval(SQL["has_admin_key"]))


async def lock_administrators(conn: Connection) -> None:
    """Lock out other removals of administrators until the commit."""
    await conn.execute(SQL["lock_administrators"])


async def has_lasting_admin_key(conn: Connection) -> bool:
    """Say whether an administrator's key is valid that does not end soon by itself."""
    return bool(await conn.fetchval(SQL["has_lasting_admin_key"]))


async def plans(conn: Connection) -> list[str]:
    """Return the names of the plans that a tenant can have."""
    return [row["name"] for row in await conn.fetch(SQL["plans"])]


async def add(
    conn: Connection, name: str, plan: str, weight: int | None, *, fair_users: bool
) -> int | None:
    """Make a tenant, and return its id; None when the name is another's."""
    made: int | None = await conn.fetchval(SQL["add"], name, plan, weight, fair_users)
    return made


async def read(
    conn: Connection,
    *,
    tenant_id: int | None = None,
    name: str | None = None,
    public_id: int | None = None,
    before: int = MAX_ID,
    limit: int = 1,
) -> list[Tenant]:
    """Return tenants, newest first; `before` is a public id."""
    rows = await conn.fetch(SQL["read"], before, limit, tenant_id, name, public_id)
    return [msgspec.convert(dict(row), Tenant) for row in rows]


async def lock(conn: Connection, tenant_id: int) -> Tenant | None:
    """Return a tenant that nobody else changes before the commit; its tasks are stored on."""
    row = await conn.fetchrow(SQL["lock"], tenant_id)
    return None if row is None else msgspec.convert(dict(row), Tenant)


async def lock_for_removal(conn: Connection, tenant_id: int) -> Tenant | None:
    """Return a tenant that is to be removed; waits for all who are about to give it something."""
    row = await conn.fetchrow(SQL["lock_for_removal"], tenant_id)
    return None if row is None else msgspec.convert(dict(row), Tenant)


async def hold(conn: Connection, tenant_id: int) -> datetime:
    """Let nobody remove a tenant before the commit, and return the time after that.

    Raises NotFound when somebody has removed it.
    """
    at: datetime | None = await conn.fetchval(SQL["hold"], tenant_id)
    if at is None:
        raise not_found()
    return at


def not_found() -> NotFound:
    """Return the error for a tenant that has been removed meanwhile."""
    return NotFound("There is no such tenant.")


async def change(conn: Connection, tenant: Tenant) -> None:
    """Store the name, the plan and the shares of a locked tenant; the name must be free."""
    await conn.execute(
        SQL["change"],
        tenant.id,
        tenant.name,
        tenant.plan,
        tenant.weight_override,
        tenant.fair_users,
    )


async def suspend(conn: Connection, tenant_id: int) -> None:
    """Restrict a tenant to reading."""
    await conn.execute(SQL["suspend"], tenant_id)


async def resume(conn: Connection, tenant_id: int) -> None:
    """Lift a tenant's suspension."""
    await conn.execute(SQL["resume"], tenant_id)


async def count_live(conn: Connection, tenant_id: int, *, up_to: int) -> int:
    """Return how many tasks of a tenant have not ended, and count no further than `up_to`."""
    count: int = await conn.fetchval(SQL["count_live"], tenant_id, up_to)
    return count


async def remove(conn: Connection, tenant_id: int) -> RemovedCounts:
    """Remove a tenant for good, with its users, keys, schedules and reservations."""
    (row,) = await conn.fetch(SQL["remove"], tenant_id)
    return RemovedCounts(row["keys"], row["users"], row["reservations"], row["schedules"])
