"""The role that requests run as: defence in depth if a statement forgets to filter by tenant.

Row-level security lets this role see and write the rows of one tenant only, the one that the
transaction names; without a name it sees nothing. Role and tenant are set with SET LOCAL, never
for the session, because the pooled connection serves other tenants afterwards. The owner of the
tables is not restricted: duties, the group commit and agents' requests run as the owner.
"""

import re
from collections.abc import Sequence

import asyncpg
import msgspec

from duly.errors import ConfigError
from duly.store.database import Connection, load_statements

SQL = load_statements("request_role.sql")
ROLE = "duly_request"
UNQUOTED_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class RoleStatus(msgspec.Struct, frozen=True):
    """Which parts of the role's setup exist."""

    exists: bool
    is_ours: bool
    is_granted: bool
    has_policies: bool
    owner: str

    @property
    def is_ready(self) -> bool:
        """Return True if requests can switch to the role and work with it."""
        return self.exists and self.is_ours and self.is_granted


async def ensure_role(conn: Connection, role: str) -> None:
    """Create the role if we may, and grant it what it needs; `read_status` returns the result."""
    status = await read_status(conn, role)
    if not status.has_policies:
        return
    for needed, statement in (
        (not status.exists, SQL["create"]),
        (not status.is_ours, SQL["grant_membership"]),
    ):
        if needed and not await _try(conn, _named(statement, role)):
            return
    await conn.execute(_named(SQL["grant"], role))


async def read_status(conn: Connection, role: str) -> RoleStatus:
    """Return which parts of the role's setup exist."""
    row = await conn.fetchrow(SQL["read_status"], role)
    return msgspec.convert(dict(row or {}), RoleStatus)


def check_name(role: str) -> str:
    """Return `role` if it needs no quotes; raises ConfigError otherwise."""
    if not UNQUOTED_NAME.fullmatch(role):
        raise ConfigError(
            f"database.request_role is {role!r}; use lower-case letters, digits and underscores."
        )
    return role


def missing_grants(status: RoleStatus, role: str) -> Sequence[str]:
    """Return the statements that an administrator of the database has to run."""
    owner = '"' + status.owner.replace('"', '""') + '"'
    create = [] if status.exists else [f"create role {role} nologin noinherit;"]
    grant = [] if status.is_ours else [f"grant {role} to {owner};"]
    return [*create, *grant]


async def _try(conn: Connection, statement: str) -> bool:
    """Run a statement; False if we lack the privilege. A concurrent run of it counts as success."""
    try:
        async with conn.transaction():
            await conn.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return False
    except (asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
        pass
    return True


def _named(statement: str, role: str) -> str:
    return statement.replace(ROLE, check_name(role))
