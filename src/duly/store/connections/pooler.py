"""Behind a pooler: sessions are others' too, so what they are like is said to PostgreSQL.

A connection of our own is told when it is opened how it is to work. A pooler that lends its
sessions by the transaction takes none of that. The role has it instead, for every session.
"""

from collections.abc import Mapping
from typing import Any

import asyncpg

from duly.errors import ConfigError

OURS = frozenset({"application_name", "statement_timeout"})
"""What may differ: a name, and a bound that whoever runs the database may have chosen."""
ASK = """
select lower(s.name) as name, s.setting, current_user::text as role,
       current_database()::text as database
  from pg_catalog.pg_settings s
 where lower(s.name) = any($1)
"""


async def check_sessions(pool: "asyncpg.Pool[Any]", wanted: Mapping[str, str]) -> None:
    """Make sure that sessions are as `wanted`; else say how to make them so.

    Only one is asked. The others come from the same role, unless they are older than its settings.
    """
    names = sorted(wanted.keys() - OURS)
    async with pool.acquire() as conn:
        rows = await conn.fetch(ASK, names)
    found = {row["name"]: row["setting"] for row in rows}
    wrong = [name for name in names if found.get(name) != wanted[name]]
    if not wrong:
        return
    role, database = rows[0]["role"], rows[0]["database"]
    statements = "\n".join(
        f"  alter role {role} in database {database} set {name} = '{wanted[name]}';"
        for name in wrong
    )
    raise ConfigError(
        "Sessions behind the pooler are not as Duly needs them. Run this in PostgreSQL, and "
        f"RECONNECT in PgBouncer:\n{statements}"
    )
