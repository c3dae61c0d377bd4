"""The role that requests take on: a second lock, should a statement forget its tenant.

Row level security lets this role see and write the rows of one tenant only, the one
that the transaction names; with none named it sees nothing. Both the role and the
tenant are set for the transaction alone, never for the session, because the connection
is somebody else's afterwards. The owner of the tables is not bound: duties, the group
commit and what nodes ask run as the owner.
"""

import re
from collections.abc import Sequence

import asyncpg
import msgspec

from duly.errors import ConfigError
from duly.store.database import Connection, load_statements

SQL = load_statements("request_role.sql")
ROLE = "duly_request"
NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Standing(msgspec.Struct, frozen=True):
    """What there is of the role."""

    exists: bool
    is_ours: bool
    is_granted: bool
    has_policies: bool
    owner: str

    @property
    def is_ready(self) -> bool:
        """Say whether requests can take the role on and do their work with it."""
        return self.exists and self.is_ours and self.is_granted


async def establish(conn: Connection, role: str) -> None:
    """Make the role, as far as we may, and grant it what it needs; `look` tells the result."""
    standing = await look(conn, role)
    if not standing.has_policies:
        return
    for needed, statement in (
        (not standing.exists, SQL["make"]),
        (not standing.is_ours, SQL["join"]),
    ):
        if needed and not await _try(conn, _named(statement, role)):
            return
    await conn.execute(_named(SQL["grant"], role))


async def look(conn: Connection, role: str) -> Standing:
    """Say what there is of the role, and change nothing."""
    row = await conn.fetchrow(SQL["look"], role)
    return msgspec.convert(dict(row or {}), Standing)


def check_name(role: str) -> str:
    """Return a name that needs no quotes; raises ConfigError for any other."""
    if not NAME.fullmatch(role):
        raise ConfigError(
            f"database.request_role is {role!r}; use small letters, digits and underscores."
        )
    return role


def remedy(standing: Standing, role: str) -> Sequence[str]:
    """Return the statements that an administrator of the database has to run."""
    owner = '"' + standing.owner.replace('"', '""') + '"'
    make = [] if standing.exists else [f"create role {role} nologin noinherit;"]
    join = [] if standing.is_ours else [f"grant {role} to {owner};"]
    return [*make, *join]


async def _try(conn: Connection, statement: str) -> bool:
    """Run a statement that we may lack the right for; somebody else may do the same just now."""
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
