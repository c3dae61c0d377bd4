"""Checks the session settings behind a transaction-mode pooler.

A direct connection gets its settings when it is opened. A transaction-mode pooler passes none of
them on, so they must be set on the role instead, for every session.
"""

from collections.abc import Mapping
from typing import Any

import asyncpg

from duly.errors import ConfigError

MAY_DIFFER = frozenset({"application_name", "statement_timeout"})
"""Settings that are not checked: a label, and a timeout that the operator may choose."""
READ_SETTINGS = """
select lower(s.name) as name, s.setting, current_user::text as role,
       current_database()::text as database
  from pg_catalog.pg_settings s
 where lower(s.name) = any($1)
"""


async def check_sessions(pool: "asyncpg.Pool[Any]", wanted: Mapping[str, str]) -> None:
    """Raise ConfigError with the missing ALTER ROLE statements if settings are not as `wanted`.

    One session is checked. The others belong to the same role, and differ only if they are older
    than its settings.
    """
    names = sorted(wanted.keys() - MAY_DIFFER)
    async with pool.acquire() as conn:
        rows = await conn.fetch(READ_SETTINGS, names)
    settings = {row["name"]: row["setting"] for row in rows}
    wrong = [name for name in names if settings.get(name) != wanted[name]]
    if not wrong:
        return
    role, database = rows[0]["role"], rows[0]["database"]
    statements = "\n".join(
        f"  alter role {role} in database {database} set {name} = '{wanted[name]}';"
        for name in wrong
    )
    raise ConfigError(
        "Sessions behind the pooler lack settings that Duly needs. Run this in PostgreSQL, and "
        f"RECONNECT in PgBouncer:\n{statements}"
    )
