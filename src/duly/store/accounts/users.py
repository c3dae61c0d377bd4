"""Users of tenants: a name, a password for the pages, and what whoever logs in may do.

One that is removed keeps its row, because history names it. When its name is given
again the row comes back, with neither the password nor the keys that it had.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from duly.errors import NotFound
from duly.model.tenant import Scope
from duly.store.database import Connection, load_statements

SQL = load_statements("users.sql")
NEWEST = 2**63 - 1


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody of a tenant; people see the public id, which counts nothing."""

    id: int
    public_id: int
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    has_password: bool = False
    keys: int = 0
    """How many that can be used, without those of logins."""
    key_scopes: frozenset[Scope] = frozenset()
    """What its keys may do, which can be more than it may itself; known of one that is locked."""

    @property
    def reach(self) -> frozenset[Scope]:
        """Return what it may do, by a password or by any of its keys."""
        return self.scopes | self.key_scopes


class LoginUser(msgspec.Struct, frozen=True):
    """Somebody who is about to be let in."""

    id: int
    name: str
    tenant_id: int
    tenant: str
    scopes: frozenset[Scope]
    password_hash: str | None


async def read(
    conn: Connection,
    tenant_id: int,
    *,
    user_id: int | None = None,
    name: str | None = None,
    public_id: int | None = None,
    before: int = NEWEST,
    limit: int = 1,
) -> list[User]:
    """Return users of a tenant, newest first; `before` is a public id."""
    rows = await conn.fetch(SQL["read"], tenant_id, before, limit, user_id, name, public_id)
    return [msgspec.convert(dict(row), User) for row in rows]


async def add(
    conn: Connection,
    tenant_id: int,
    name: str,
    scopes: Iterable[Scope],
    password_hash: str | None = None,
) -> int | None:
    """Make a user, and return its id; None when there is one of that name."""
    made: int | None = await conn.fetchval(
        SQL["add"], tenant_id, name, sorted(scopes), password_hash
    )
    return made


async def lock(
    conn: Connection, tenant_id: int, *, user_id: int | None = None, name: str | None = None
) -> User | None:
    """Return a user that nobody else changes before the commit."""
    row = await conn.fetchrow(SQL["lock"], tenant_id, user_id, name)
    return None if row is None else msgspec.convert(dict(row), User)


async def change_scopes(conn: Connection, user: User, scopes: frozenset[Scope]) -> int:
    """Say what a user may do; what is taken from it is taken from its keys, counted here."""
    await conn.execute(SQL["change_scopes"], user.id, sorted(scopes))
    if user.scopes <= scopes:
        return 0
    return len(await conn.fetch(SQL["narrow_keys"], user.id, sorted(scopes)))


async def change_password(conn: Connection, user_id: int, password_hash: str | None) -> None:
    """Give a user another password, or none; whoever came in with the old one is out."""
    await conn.execute(SQL["change_password"], user_id, password_hash)
    await conn.execute(SQL["end_logins"], user_id)


async def remove(conn: Connection, user_id: int) -> int:
    """Remove a user; return how many keys were revoked with it."""
    return len(await conn.fetch(SQL["remove"], user_id))


def gone() -> NotFound:
    """Return what whoever comes too late is told."""
    return NotFound("There is no such user any more.")


async def to_log_in(conn: Connection, tenant: str, name: str) -> tuple[int, str] | None:
    """Return the id of a user and what its password is compared with."""
    row = await conn.fetchrow(SQL["to_log_in"], tenant, name)
    return None if row is None else (row["id"], row["password_hash"])


async def lock_login(conn: Connection, user_id: int) -> LoginUser | None:
    """Return a user whose password was right; nobody else changes it before the commit."""
    row = await conn.fetchrow(SQL["lock_login"], user_id)
    return None if row is None else msgspec.convert(dict(row), LoginUser)
