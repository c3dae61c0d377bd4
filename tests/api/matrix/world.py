"""Two tenants on one server: the owner of all objects, and one that tries to reach them."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from duly import wire
from duly.api.requests.query import encode_cursor
from duly.store.accounts import tenants
from tests.api.matrix.holdings import ALL, LATER, Holding, Runner, settle, submit

UNTOLD = frozenset({tenants.SQL["by_key"], "commit"})
"""Who calls is asked again whenever what was remembered has run out, and nobody waits for the
end of what was only read: neither tells anything of a route."""
DRIVER = ("SELECT", "WITH", "SET")
"""How the driver's own statements begin, with which it gets to know a fresh connection; ours are
in small letters."""
Statements = list[str]
WATCHED: ContextVar[Statements | None] = ContextVar("statements", default=None)


@dataclass(slots=True)
class World:
    """A server, its tenants, and a look behind the scenes."""

    api: Any
    components: Any
    runner: Runner
    key_for: Any
    tenants: dict[str, Holding] = field(default_factory=dict)

    @property
    def victim(self) -> Holding:
        """Return whose things nobody else may see."""
        return self.tenants["canary"]

    @property
    def stranger(self) -> Holding:
        """Return who may do everything, with its own things."""
        return self.tenants["acme"]

    async def settle(self, tenant: str) -> Holding:
        """Make a tenant that has everything."""
        own = await settle(self.api, self.runner, self.key_for, tenant)
        own.things |= {"node": "node-a", "spare_node": "spare"}
        own.things |= {"queue": "delayable", "spare_queue": "spare"}
        self.tenants[tenant] = own
        return own

    async def execute(self, statement: str, *arguments: Any) -> None:
        """Change the database behind the server's back."""
        async with self.components.database.connection() as conn:
            await conn.execute(statement, *arguments)

    async def noted(self) -> int:
        """Return how many entries the audit log has."""
        async with self.components.database.connection() as conn:
            return int(await conn.fetchval("select count(*) from audit_log"))

    async def join_token(self) -> str:
        """Return a token with which nodes may join."""
        answer = await self.api.call("POST", "/v1/node-tokens", json={"expires_in": "1h"})
        return str(answer.json()["token"])

    async def attempt_key(self, ref: wire.AttemptRef) -> str:
        """Return a key that speaks for an attempt that runs."""
        return await self.runner.agent.attempt_key(ref)

    async def late_attempt_key(self) -> str:
        """Return the key of an attempt of the victim's that has ended."""
        ref = await self.runner.start(await submit(self.victim))
        key = await self.attempt_key(ref)
        await self.runner.finish(ref, self.victim.tenant.encode(), 0)
        return key

    async def fresh_key(self, own: Holding) -> Any:
        """Return the API for a holder of a key of which no server has heard yet."""
        key = await self.key_for(own.tenant, f"{own.tenant}-late", *ALL)
        return self.api.with_key(key)

    async def fingerprint(self, tenant: str) -> dict[str, str]:
        """Return a digest of every row of a tenant, by table."""
        async with self.components.database.connection() as conn:
            number = await conn.fetchval("select id from tenants where name = $1", tenant)
            tables = await conn.fetch(TABLES)
            return {
                table: await conn.fetchval(
                    f"select coalesce(md5(string_agg(t::text, '' order by t::text)), '')"
                    f" from {table} t where tenant_id = $1",
                    number,
                )
                for (table,) in tables
            }

    def watch_statements(self) -> None:
        """Note every statement from now on, for whoever sets WATCHED around a call."""
        pool = self.components.database._pool
        prepare = pool._init

        async def init(conn: Any) -> None:
            await prepare(conn)
            conn.add_query_logger(_note)

        pool._init = init
        for holder in pool._holders:
            if holder._con is not None:
                holder._con.add_query_logger(_note)


TABLES = """
select c.relname
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
 where c.relnamespace = 'duly'::regnamespace and c.relkind in ('r', 'p')
   and not c.relispartition
   and c.relname not in ('usage', 'run_times')  -- recorded some time after an attempt has ended
 order by 1
"""


def _note(query: asyncpg.connection.LoggedQuery) -> None:
    seen = WATCHED.get()
    is_drivers_own = query.query.lstrip().startswith(DRIVER)
    if seen is not None and not is_drivers_own and query.query not in UNTOLD:
        seen.append(query.query)


async def build(api: Any, join: Any, key_for: Any) -> World:
    """Let both settle, beside a node that is large enough for all of it."""
    await join("spare", cpu=0)
    agent = await join("node-a", cpu=1000)
    await api.call("POST", "/v1/queues", json={"name": "spare", "level": 50})
    world = World(api, api.components, Runner(agent), key_for)
    for tenant in ("canary", "acme"):
        await world.settle(tenant)
    # The newest task of all is the victim's: the page after it is not an empty one.
    for own in (world.stranger, world.victim):
        own.things["cursor"] = encode_cursor(int(await submit(own, run_at=LATER, name="same")))
    return world
