"""The second lock: as the role of requests, one tenant's rows and nobody else's.

What is tested comes from the catalogue. A table that holds rows of tenants and is not
kept apart, or that requests reach and nobody has thought about, fails here.
"""

import asyncio
import contextlib
import os
import random

import asyncpg
import pytest

from duly.errors import NotFound, Unavailable
from duly.store.connections.request_role import ROLE
from duly.store.database import Database, Unstorable
from tests.conftest import COPY, _run, drop_database, with_database

OURS, THEIRS = 1, 2
COMMON = {"usage_watermark", "plans", "queues", "shapes", "incarnations"}
"""What requests see and is nobody's own."""
PARTLY_COMMON = {"nodes"}
"""What has rows of tenants, and rows that are nobody's own, as those of agents."""
SECRET = {
    ("keys", "hash"),
    ("users", "password_hash"),
    ("nodes", "key_hash"),
    ("incarnations", "functions"),
}

ROWS = {
    "users": "insert into users (id, tenant_id, name) values ({tenant} + 100, {tenant}, 'u')",
    "keys": "insert into keys (tenant_id, prefix, hash, scopes) "
    "values ({tenant}, 'p', 'hash {tenant}', '{{read}}')",
    "tasks": "insert into tasks values ({tenant} + 100, {tenant}, null, 1, null, 'basic', '{{}}', "
    "'{{}}', '5 m', '1 h', 3, 'retry', 0, null, null, null, 0, now())",
    "live": "insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by, "
    "delay_tolerance, execution_cap, max_attempts, on_lost) "
    "values ({tenant} + 100, {tenant}, 1, 'waiting', 0, now(), now(), '5 m', '1 h', 3, 'retry')",
    "attempts": "insert into attempts (task_id, attempt, tenant_id, token, node_id, "
    "incarnation_id, outcome, leased_at, finished_at) "
    "values ({tenant} + 100, 1, {tenant}, 1, 1, 1, 'lost', now(), now())",
    "stopping_attempts": "insert into stopping_attempts values ({tenant} + 100, {tenant} + 100, 1, "
    "{tenant}, 1, 1, 1, now(), '1 h', now())",
    "ends": "insert into ends values ({tenant} + 100, {tenant}, 'failed', 'failed', 1, null, 1, "
    "1, 0, null, now(), now(), null, now(), null)",
    "stages": "insert into stages values ({tenant} + 100, 's', {tenant}, 1, '1', now())",
    "children": "insert into children values ({tenant} + 100, {tenant}, {tenant})",
    "nodes": "insert into nodes (id, tenant_id, name, key_hash, created_at) "
    "values ({tenant} + 100, {tenant}, 'worker', 'hash {tenant}', now())",
    "events": "insert into events (task_id, tenant_id, at, kind) "
    "values ({tenant} + 100, {tenant}, now(), 'said')",
    "run_times": "insert into run_times values ({tenant}, 'name', 1, 0, 0, now())",
    "dead_letters": "insert into dead_letters values ({tenant} + 100, {tenant}, 'failed', now())",
    "submissions": "insert into submissions "
    "values ({tenant}, 'key', 'x', {tenant} + 100, null, now())",
    "reservations": "insert into reservations values ({tenant}, {tenant}, 1, '{{}}', now(), null)",
    "tiers": "insert into tiers values ({tenant}, 'tier', '{{}}')",
    "downstreams": "insert into downstreams (tenant_id, key, rate, adaptive) "
    "values ({tenant}, 'stripe', 1, true)",
    "buckets": "insert into buckets values ({tenant}, 1, now())",
    "audit_log": "insert into audit_log (tenant_id, actor, action, target) "
    "values ({tenant}, 'a', 'b', 'c')",
    "usage": "insert into usage "
    "values ({tenant}, '2026-01-01', null, null, 'usual', 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1)",
    "former_specs": "insert into former_specs values ({tenant} + 100, 1, {tenant}, 1, null, '5 m')",
    "edges": "insert into edges values ({tenant} + 100, {tenant}, {tenant}, 'success', true)",
    "graph_operations": "insert into graph_operations values"
    " ({tenant}, {tenant}, 1, 'pause', 1, now(), now())",
    "graphs": "insert into graphs values ({tenant}, {tenant}, null, 'g', '{{1}}', now())",
    "ended_upstreams": "insert into ended_upstreams values ({tenant}, {tenant}, 'done', 0)",
    "schedules": "insert into schedules values ({tenant}, {tenant}, null, null, '{{}}', '{{}}', "
    "now(), 'once', 'skip', now(), null, '{{}}', now(), now())",
    "occurrences": "insert into occurrences values ({tenant}, now(), {tenant}, {tenant} + 100, "
    "'daily', null, null, 1, now())",
    "artifacts": "insert into artifacts values ({tenant}, {tenant}, sha256('x'), 1, {tenant}, "
    "now(), now())",
    "artifact_uses": "insert into artifact_uses values ({tenant}, {tenant} + 100, {tenant})",
    "tenants": "insert into tenants (id, name, plan) "
    "values ({tenant}, 'tenant {tenant}', 'unlimited') on conflict do nothing",
}
"""A row of a tenant for every table that has such rows."""

TABLES = """
select c.relname as name, c.relispartition as is_part, c.relrowsecurity as is_locked,
       exists (select 1 from pg_policy p where p.polrelid = c.oid) as has_policy,
       exists (select 1 from pg_attribute a
                where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped)
        as has_tenant,
       has_any_column_privilege($1, c.oid, 'select, insert, update, references')
        or has_table_privilege($1, c.oid, 'delete, truncate, trigger') as is_reachable,
       has_table_privilege($1, c.oid, 'insert') as is_insertable,
       has_table_privilege($1, c.oid, 'update') as is_updatable,
       has_table_privilege($1, c.oid, 'delete') as is_deletable
  from pg_class c
 where c.relnamespace = 'duly'::regnamespace
   and c.relkind in ('r', 'p', 'f', 'm')
"""


@pytest.fixture(scope="module")
def filled(postgres):
    """A database with a row of each of two tenants in every table; tests undo what they do."""
    name = f"row_security_{os.getpid()}"
    asyncio.run(_run(postgres, f"create database {name} {COPY}"))
    asyncio.run(fill(with_database(postgres, name)))
    yield with_database(postgres, name)
    asyncio.run(drop_database(postgres, name))


async def fill(dsn):
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    await conn.execute(
        "insert into shapes (id, needs, key) values (1, '{}', 'a');"
        "insert into nodes (id, name, key_hash, created_at) values (1, 'n', 'x', now())"
    )
    for table in ["tenants", *(name for name in ROWS if name != "tenants")]:
        for tenant in (OURS, THEIRS):
            await conn.execute(ROWS[table].format(tenant=tenant))
    await conn.close()


@pytest.fixture
async def full(filled):
    """A connection to that database."""
    conn = await asyncpg.connect(filled, server_settings={"search_path": "duly"})
    yield conn
    await conn.close()


async def tables(conn):
    return {row["name"]: row for row in await conn.fetch(TABLES, ROLE)}


@contextlib.asynccontextmanager
async def confined(conn, tenant):
    """Be the role of requests, for a tenant or for none, and undo all of it."""
    change = conn.transaction()
    await change.start()
    await conn.execute(f"set local role {ROLE}")
    if tenant is not None:
        await conn.execute(f"set local duly.tenant = {tenant}")
    try:
        yield
    finally:
        await change.rollback()


def owner(table):
    """Return what says whose a row of the table is."""
    return {"tenants": "id"}.get(table, "tenant_id")


async def test_every_table_with_rows_of_tenants_is_kept_apart(full):
    found = await tables(full)
    with_rows = {
        name for name, one in found.items() if one["has_tenant"] and not one["is_part"]
    } | {"tenants"}
    locked = {name for name, one in found.items() if one["is_locked"] and one["has_policy"]}
    assert with_rows <= locked
    assert with_rows == ROWS.keys(), "a table without a row in ROWS is not tested below"


async def test_what_requests_reach_is_locked_or_nobodys_own(full):
    found = await tables(full)
    reached = {name for name, one in found.items() if one["is_reachable"]}
    assert reached - COMMON <= {name for name, one in found.items() if one["is_locked"]}
    assert not {name for name in reached if found[name]["is_part"]}


async def test_a_day_that_is_made_later_is_reached_only_as_a_part(full):
    await full.execute("call ensure_days(day_of(duly.now()) + 300, day_of(duly.now()) + 300)")
    found = await tables(full)
    assert [name for name, one in found.items() if one["is_part"] and one["is_reachable"]] == []
    async with confined(full, OURS):
        await full.execute(
            "insert into tasks select first_id_of(day_of(duly.now()) + 300), tenant_id, user_id, "
            "shape_id, name, tier, payload, labels, delay_tolerance, execution_cap, max_attempts, "
            "on_lost, priority, run_at, idempotency_key, replay_of, admitted_by, submitted_at "
            "from tasks"
        )
        assert await full.fetchval("select count(*) from tasks") == 2


async def test_nothing_lends_requests_the_rights_of_the_owner(full):
    views = await full.fetch(
        "select relname from pg_class where relnamespace = 'duly'::regnamespace "
        "and relkind = 'v' and has_any_column_privilege($1, oid, 'select, insert, update') "
        "and not coalesce('security_invoker=true' = any(reloptions), false)",
        ROLE,
    )
    functions = await full.fetch(
        "select proname from pg_proc where pronamespace = 'duly'::regnamespace and prosecdef"
    )
    assert (views, functions) == ([], [])


async def test_the_role_is_nothing_by_itself(full):
    row = await full.fetchrow(
        "select rolsuper, rolcanlogin, rolbypassrls, rolcreaterole, rolcreatedb, "
        "pg_has_role($1, current_user, 'member') as is_owner from pg_roles where rolname = $1",
        ROLE,
    )
    assert not any(row.values())


@pytest.mark.parametrize("table", ROWS)
async def test_rows_of_others_cannot_be_read(full, table):
    read = f"select {owner(table)} from {table}"
    common = {None} if table in PARTLY_COMMON else set()
    for tenant in (OURS, THEIRS):
        async with confined(full, tenant):
            assert {row[0] for row in await full.fetch(read)} == {tenant} | common
    async with confined(full, None):
        assert {row[0] for row in await full.fetch(read)} == common


@pytest.mark.parametrize("table", ROWS)
async def test_rows_of_others_cannot_be_written(full, table):
    allowed = (await tables(full))[table]
    column = owner(table)
    writes = {
        f"update {table} set {column} = {column}": allowed["is_updatable"],
        f"delete from {table}": allowed["is_deletable"],
    }
    for statement, is_allowed in writes.items():
        for tenant, rows in ((OURS, 1), (None, 0)):
            async with confined(full, tenant):
                if is_allowed:
                    assert (await full.execute(statement)).endswith(f" {rows}"), statement
                else:
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await full.execute(statement)
    assert await full.fetchval(f"select count(*) from {table}") >= 2


@pytest.mark.parametrize("table", ROWS)
async def test_no_row_can_be_given_to_others(full, table):
    column = owner(table)
    for statement in (
        ROWS[table].replace(" on conflict do nothing", "").format(tenant=THEIRS),
        f"update {table} set {column} = {THEIRS}",
    ):
        async with confined(full, OURS):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await full.execute(statement)


@pytest.mark.parametrize(("table", "column"), sorted(SECRET))
async def test_hashes_cannot_be_read(full, table, column):
    async with confined(full, OURS):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await full.fetch(f"select {column} from {table}")


SESSION = """
select current_user::text, coalesce(current_setting('duly.tenant', true), '') as tenant,
       array(select name || '=' || setting from pg_settings where source = 'session' order by name)
        as changed
"""


async def test_a_connection_leaks_nothing_to_whoever_has_it_next(filled):
    async with await Database.connect(filled) as database:
        async with database.connection() as conn:
            before = await conn.fetchrow(SESSION)
        assert before["tenant"] == ""
        for _ in range(3):
            async with database.reading_for(OURS) as conn:
                inside = await conn.fetchrow(SESSION)
                assert (inside["current_user"], inside["tenant"]) == (ROLE, str(OURS))
            async with database.writing_for(THEIRS) as conn:
                inside = await conn.fetchrow(SESSION)
                assert (inside["current_user"], inside["tenant"]) == (ROLE, str(THEIRS))
            with pytest.raises(NotFound):
                async with database.reading_for(OURS) as conn:
                    raise NotFound("not here")
            with pytest.raises(Unstorable):
                async with database.reading_for(OURS) as conn:
                    await conn.fetch("select 1 / 0")
        await assert_clean(database, before)


async def assert_clean(database, before):
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            conn = await stack.enter_async_context(database.connection())
            assert await conn.fetchrow(SESSION) == before
            assert not conn.is_in_transaction()


async def test_a_read_that_is_broken_off_leaks_nothing(filled):
    dice = random.Random(5)
    async with await Database.connect(filled) as database:
        async with database.connection() as conn:
            before = await conn.fetchrow(SESSION)

        async def read(tenant):
            async with database.reading_for(tenant) as conn:
                for _ in range(5):
                    rows = await conn.fetch("select tenant_id from tasks")
                    assert [row[0] for row in rows] == [tenant]

        for _ in range(40):
            reads = [asyncio.create_task(read(1 + n % 2)) for n in range(4)]
            for _ in range(dice.randrange(12)):
                await asyncio.sleep(0)
            for one in reads:
                if dice.random() < 0.5:
                    one.cancel()
            done = await asyncio.gather(*reads, return_exceptions=True)
            assert all(one is None or isinstance(one, asyncio.CancelledError) for one in done)
        await assert_clean(database, before)


async def test_reading_writes_nothing(filled):
    async with await Database.connect(filled) as database:
        with pytest.raises(Unavailable, match="read-only transaction"):
            async with database.reading_for(OURS) as conn:
                await conn.execute("delete from tasks")
