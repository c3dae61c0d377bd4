"""Users of tenants: a name, a password for the dashboard, and scopes.

A removed user keeps its row, because history refers to it. If the name is used again, the row is
reused, without its former password and keys.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from duly.errors import NotFound
from duly.model.tenant import Scope
from duly.store.database import Connection, load_statements

SQL = load_statements("users.sql")
MAX_ID = 2**63 - 1


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user of a tenant; the public id is shown to people, and reveals no count."""

    id: int
    public_id: int
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    has_password: bool = False
    keys: int = 0
    """The number of usable keys, without those of logins."""
    key_scopes: frozenset[Scope] = frozenset()
    """The scopes of its keys, which may exceed its own; only set on a locked user."""

    @property
    def reach(self) -> frozenset[Scope]:
        """Return the scopes that the user has by password or by any of its keys."""
        return self.scopes | self.key_scopes


class LoginUser(msgspec.Struct, frozen=True):
    """A user who is about to be logged in."""

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
    before: int = MAX_ID,
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
    """Add a user, and return its id; None if the name is in use."""
    made: int | None = await conn.fetchval(
        SQL["add"], tenant_id, name, sorted(scopes), password_hash
    )
    return made


async def lock(
    conn: Connection, tenant_id: int, *, user_id: int | None = None, name: str | None = None
) -> User | None:
    """Return a user, locked against other changes until the commit."""
    row = await conn.fetchrow(SQL["lock"], tenant_id, user_id, name)
    return None if row is None else msgspec.convert(dict(row), User)


async def change_scopes(conn: Connection, user: User, scopes: frozenset[Scope]) -> int:
    """Set a user's scopes; return how many of its keys lost scopes that it no longer holds."""
    await conn.execute(SQL["change_scopes"], user.id, sorted(scopes))
    if user.scopes <= scopes:
        return 0
    return len(await conn.fetch(SQL["narrow_keys"], user.id, sorted(scopes)))


async def change_password(conn: Connection, user_id: int, password_hash: str | None) -> None:
    """Change or remove a user's password, and end the logins made with the old one."""
    await conn.execute(SQL["change_password"], user_id, password_hash)
    await conn.execute(SQL["end_logins"], user_id)


async def remove(conn: Connection, user_id: int) -> int:
    """Remove a user; return how many keys were revoked with it."""
    return len(await conn.fetch(SQL["remove"], user_id))


def not_found() -> NotFound:
    """Return the error for a user that was removed concurrently."""
    return NotFound("There is no such user any more.")


async def read_password_hash(conn: Connection, tenant: str, name: str) -> tuple[int, str] | None:
    """Return the id of a user, and the hash that its password is checked against."""
    row = await conn.fetchrow(SQL["read_password_hash"], tenant, name)
    return None if row is None else (row["id"], row["password_hash"])


async def lock_login(conn: Connection, user_id: int) -> LoginUser | None:
    """Return a user whose password was correct, locked against other changes until the commit."""
    row = await conn.fetchrow(SQL["lock_login"], user_id)
    return None if row is None else msgspec.convert(dict(row), LoginUser)
