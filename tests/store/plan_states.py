"""Plans in all states of the tables: never used, drained, large, and large and analysed.

Some statements are also run, to see what they really touch.
"""

import asyncpg

from duly.config import DatabaseSettings
from duly.store.database import _server_settings
from tests.conftest import COPY, drop_database, with_database
from tests.store.plans import STATEMENTS, explain, explain_all, inner_statements

STATES = ("empty", "drained", "grown", "analysed")
PIECE = 2000
LOAD = """
insert into shapes (id, needs, key) select g, '{}', g::text from generate_series(1, 5) g;
insert into nodes (id, name, key_hash, created_at)
select g, 'n' || g, g::text::bytea, now() from generate_series(1, 60) g;
insert into incarnations
       (id, node_id, capacity, isolation, version, started_at, renewed_at, expires_at, ended_at)
select g, 1 + g % 60, '{}', 'process', '1', now(), now(), now() + interval '1 hour',
       case when g <= 2940 then now() end
  from generate_series(1, 3000) g;
create table numbers as
select g, first_id_of(day_of(duly.now()) + g % 3 - 1) + ((g / 3)::bigint << 20) + g as id
  from generate_series(1, 240000) g;
insert into tasks
select id, 1 + g % 100, null, 1 + g % 5, 'name ' || g % 1000, 'basic', '{"command": ["true"]}',
       '{}', '5 m', '1 h', 3, 'retry', 0, null, null, null, 0, now()
  from numbers where g > 180000;
insert into live (
        id, tenant_id, shape_id, status, priority, ready_at, start_by, delay_tolerance,
        execution_cap, max_attempts, on_lost, attempt, node_id, incarnation_id, token,
        leased_at, kill_at
       )
select id, 1 + g % 100, 1 + g % 5,
       (case when runs then 'running' when late then 'scheduled' else 'waiting' end)::status,
       0, at, at, '5 m', '1 h', 3, 'retry', runs::int,
       case when runs then 1 + g / 100 % 60 end, case when runs then 2941 + g / 100 % 60 end,
       case when runs then g end, case when runs then now() end, case when runs then now() end
  from numbers
 cross join lateral (
        select g % 100 = 0 as runs, g % 100 < 11 as late, now() + g * interval '1 ms' as at
       ) as given
 where g <= 200000;
insert into attempts
select id, 1, 1 + g % 100, g, 1, 1, 'succeeded', 0, null, now(), now(), now(), 1, 1, 1, 0, null
  from numbers where g > 200000;
insert into ends
select id, 1 + g % 100, (case when g % 50 = 0 then 'failed' else 'done' end)::status, 'succeeded',
       0, null, 1, 0, 0, 1, now(), now(), now(), now(), null
  from numbers where g > 200000;
insert into edges
select id, id - 1, 1 + g % 100, 'success', true from numbers where g <= 100000;
insert into occurrences
select 1 + g % 2000, now() - g * interval '1 s', 1 + g % 100, id, 'every', null, null, 1, now()
  from numbers where g > 200000;
insert into submissions
select 1 + g % 100, 'key ' || g, 'x', id, null, now() from numbers where g % 10 = 0;
insert into tenants (name, plan) select 't' || g, 'free' from generate_series(1, 300) g;
insert into schedules
select g, 1 + g % 100, null, null, '{}', '{}', now(), 'once', 'skip',
       now() + g * interval '1 s', case when g % 10 = 0 then now() end, '{}', now(), now()
  from generate_series(1, 20000) g;
insert into users (tenant_id, name)
select t.id, 'u' || g from tenants t, generate_series(1, 10) g;
insert into keys (tenant_id, user_id, prefix, hash, scopes, is_login)
select u.tenant_id, u.id, g::text, sha256((u.id || '.' || g)::bytea), '{read}', g > 2
  from users u, generate_series(1, 5) g;
insert into audit_log (tenant_id, actor, action, target)
select 1 + g % 300, 'a', 'b', 'c' from generate_series(1, 20000) g;
insert into buckets (tenant_id, tokens, filled_at) select id, 1, now() from tenants;
"""
DRAIN = """
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost)
select g, 1, 1, 'waiting', 0, now(), now(), '5 m', '1 h', 3, 'retry'
  from generate_series(1, 1000) g;
delete from live;
insert into submissions select 1, g::text, 'x', g, null, now() from generate_series(1, 100) g;
delete from submissions;
"""
PASSED = """
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost)
select g, 500, 1, 'waiting', 0, now(), date_trunc('second', now()), '5 m', '1 h', 3, 'retry'
  from generate_series(1, 20000) g;
update live
   set status = 'running', attempt = 1, node_id = 42, incarnation_id = 2981,
       token = 1000000 + id, leased_at = now(), kill_at = now()
 where tenant_id = 500;
delete from live where tenant_id = 500;
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost)
select 20001, 500, 1, 'waiting', 0, now(), date_trunc('second', now()), '5 m', '1 h', 3, 'retry';
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost, attempt, node_id,
                  incarnation_id, token, leased_at, kill_at)
select 20002, 500, 1, 'running', 0, now(), now(), '5 m', '1 h', 3, 'retry', 1, 42, 2981,
       2000000, now(), now();
"""


async def plans_of_all_states(postgres):
    admin = await asyncpg.connect(postgres)
    name = "test_plans"
    await admin.execute(f"create database {name} {COPY}")
    conn = await asyncpg.connect(
        with_database(postgres, name), server_settings=_server_settings(DatabaseSettings())
    )
    try:
        await conn.execute("alter table live set (autovacuum_enabled = false)")
        found = {"empty": await explain_all(conn)}
        await conn.execute(DRAIN)
        await conn.execute("vacuum analyze live, submissions")
        found["drained"] = await explain_all(conn)
        await conn.execute("set statement_timeout = 0")
        await conn.execute(LOAD)
        found["grown"] = await explain_all(conn)
        await conn.execute("analyze")
        found["analysed"] = await explain_all(conn)
        found["run"] = await run_some(conn)
        found["pieces"] = await run_pieces(conn)
        found["behind"] = await run_behind_a_snapshot(postgres, name, conn)
        return found
    finally:
        await conn.close()
        await drop_database(postgres, name)
        await admin.close()


async def run_some(conn):
    """Run what looks up history by id, to see which days are really visited."""
    task = await conn.fetchval("select id from numbers where g = 190000")
    options = "analyze, format json"
    given = {
        "nodes.read_starts": ["2981", f"'{{{task}}}'"],
        "leases.read_reported": ["1", f"'{{{task}}}'", "'{1}'", "'{1}'"],
        "tasks.read_specs": ["1", f"'{{{task}}}'"],
        "tasks.read_admitted": [f"'{{{task}}}'"],
        "audit.examine_tasks": [str(task - 1), str(task)],
        "audit.examine_live": [f"'{{{task}}}'", "'60 s'", "'10 s'"],
        "views.read_attempts": ["1", str(task), "0", "10"],
        "read_inputs 0": [str(task), "0"],
        # It is live, and so nothing is forgotten.
        "history.delete_aged": [f"'{{{task}}}'", "'{99999}'", str(task), str(task)],
    }
    known = {**STATEMENTS, **inner_statements()}
    return {
        name: await explain(conn, known[name], arguments=arguments, options=options)
        for name, arguments in given.items()
    }


async def run_pieces(conn):
    """Run the audit's walks from the middle, to see how much they really touch."""
    middle = await conn.fetchval("select id from numbers where g = 90000")
    last = await conn.fetch(f"select id from live order by id desc limit {PIECE}")
    live = "'{" + ", ".join(str(row["id"]) for row in last) + "}'"
    # Of those before, only what is live was stored.
    stored = await conn.fetchval("select id from numbers where g = 190000")
    after = await conn.fetch(STATEMENTS["audit.read_task_ids"], stored, PIECE)
    given = {
        "audit.read_live_ids": [str(middle), str(PIECE)],
        "audit.examine_live": [live, "'60 s'", "'10 s'"],
        "audit.read_task_ids": [str(middle), str(PIECE)],
        "audit.examine_tasks": [str(stored), str(after[-1]["id"])],
        "audit.read_keys": ["50", "'key 1'", str(PIECE), "'30 d'"],
        "audit.read_subqueue_heads": ["1", "1", "300", "'60 s'"],
    }
    options = "analyze, buffers, format json"
    return {
        name: await explain(conn, STATEMENTS[name], arguments=arguments, options=options)
        for name, arguments in given.items()
    }


async def run_behind_a_snapshot(postgres, name, conn):
    """Run what reads the queue while a snapshot keeps 20,000 tasks in it that have gone.

    They came in the same second as the one that is there.
    """
    old = await asyncpg.connect(with_database(postgres, name))
    try:
        async with old.transaction(isolation="repeatable_read"):
            await old.fetch("select 1 from duly.shapes")
            await conn.execute("set enable_seqscan = on")
            await conn.execute(PASSED)
            await conn.execute("set enable_seqscan = off")
            known = await conn.fetchval("select start_by from live where id = 20001")
            given = {
                "subqueues.read_heads": [
                    *("'{500}'", "'{1}'", f"'{{{known.timestamp()}}}'", "'{200}'"),
                    *("'{0}'", "'{0}'", "'{3600}'", "'{20001}'"),
                ],
                "leases.read_running_changes": ["'{2981}'", "1900000", "'{20002}'", "'{2000000}'"],
                "nodes.read_expected": ["2981", "42", "1900000", "'{}'"],
            }
            options = "analyze, buffers, format json"
            return {
                name: await explain(conn, STATEMENTS[name], arguments=arguments, options=options)
                for name, arguments in given.items()
            }
    finally:
        await old.close()
