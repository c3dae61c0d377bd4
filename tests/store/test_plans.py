"""Every statement can be prepared, and every hot one has a plan that goes by an index.

A plan is kept once it is made. So it is looked at as it is made for unknown parameters
(generic), on tables that are empty and were never looked at, on tables that were drained
and vacuumed, and on large ones before and after they are analysed.
"""

import asyncio
import json
import re
from importlib import resources

import asyncpg
import pytest

from duly.config import DatabaseSettings
from duly.store.database import _server_settings, load_statements
from tests.conftest import COPY, drop_database, with_database

STATES = ("empty", "drained", "grown", "analysed")
HISTORY = ("tasks", "attempts", "ends", "live", "edges", "schedules", "occurrences")
FILES = sorted(file.name for file in resources.files("duly.store").joinpath("sql").iterdir())
CALLS = {"history.ensure_days", "history.drop_day"}
"""Procedures cannot be prepared; other tests call them."""
DDL = {"migrate.prepare"}
STATEMENTS = {
    f"{file.removesuffix('.sql')}.{name}": text
    for file in FILES
    for name, text in load_statements(file).items()
}
FORGETTING = {"history.read_aged", "history.forget"}
RARE = {name for name in STATEMENTS if name.startswith("history.")} - FORGETTING | {
    "overview.count_live",
    "tenants.count_live",
}
"""What may look at a whole table, because it is asked for seldom or up to a bound."""

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
select id, 1, g, 1, 1, 'succeeded', 0, null, now(), now(), now(), 1, 1, 1, 0, null
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


def nodes(plan):
    """Yield every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def parent(relation):
    """Return the table of which a relation is a day."""
    return re.sub(r"_(\d+|rest)$", "", relation)


def scans(plan, table):
    """Return the nodes that read a table or one of its days."""
    return [
        node
        for node in nodes(plan)
        if parent(node.get("Relation Name", "")) == table and node["Node Type"] != "ModifyTable"
    ]


def indexes(plan, table):
    """Return the indexes through which a table is read, days under their parent's name."""
    found = set()
    for node in nodes(plan):
        name = node.get("Index Name", "")
        if re.match(rf"{table}_", name):
            found.add(re.sub(r"^(\w+?)_(\d+|rest)_", r"\1_", name))
    return found


async def explain(conn, text, *, arguments=None, options="format json"):
    count = max([int(number) for number in re.findall(r"\$(\d+)", text)], default=0)
    given = arguments or ["null"] * count
    await conn.execute(f"prepare statement as {text}")
    try:
        call = f"execute statement ({', '.join(given)})" if count else "execute statement"
        return json.loads(await conn.fetchval(f"explain ({options}) {call}"))[0]["Plan"]
    finally:
        await conn.execute("deallocate statement")


async def explain_all(conn):
    return {
        name: await explain(conn, text)
        for name, text in {**STATEMENTS, **inner_statements()}.items()
        if name not in CALLS | DDL and not name.startswith("migrate.")
    }


def inner_statements():
    """Return the statements inside our functions, with their variables as parameters."""
    folder = resources.files("duly.store").joinpath("migrations")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    schema = "".join(file.read_text() for file in files).replace("create or replace", "create")
    found = {}
    for name in (
        "lease",
        "lease_and_tell",
        "end_each_unstarted",
        "attach_edges",
        "settle_edges",
        "read_inputs",
        "request_cancel",
        "pause_tasks",
        "resume_tasks",
        "join_node",
        "drain_node",
        "remove_node",
        "override_capacity",
    ):
        begin = schema.rindex(f"create function {name}(")
        body = schema[begin : schema.index("$$;", begin)]
        parameters = re.findall(r"(p_\w+) ([\w.]+(?:\[\])?)", body[: body.index("returns")])
        head = body[: body.index("\nbegin\n")]
        declared = re.findall(r"^    (\w+) ([\w.]+(?:\[\])?)(?: :=.*)?;", head, re.MULTILINE)
        types = [*parameters, *declared]
        text = body[body.index("\nbegin\n") :]
        parts = [part.strip() for part in re.split(r";\n", text)]
        for number, part in enumerate(parts):
            sql = re.sub(r"^(begin\s+|while .* loop\s+|perform 1|return query\s+)", "", part)
            sql = re.sub(r"^for .* in\s+(select .*)\n    loop\n.*", r"\1", sql, flags=re.DOTALL)
            if part.removeprefix("begin").strip().startswith("perform 1"):
                sql = "select 1" + part.split("perform 1", 1)[1]
            sql = re.sub(r"\breturning \w+\.id into fresh|^\s+into .*$", "", sql, flags=re.M)
            sql = sql.replace("tenant_id, at, kind", 'tenant_id, "at", kind')
            if not re.match(r"\s*(select|update|insert|delete|with)\b", sql):
                continue
            for place, (variable, kind) in enumerate(types, 1):
                sql = re.sub(rf"(?<![.\w\"]){variable}\b(?!\s*\()", f"${place}::{kind}", sql)
            found[f"{name} {number}"] = _renumbered(sql)
    return found


def _renumbered(sql):
    """Number parameters without gaps, as a prepared statement wants them."""
    used = sorted({int(number) for number in re.findall(r"\$(\d+)", sql)})
    return re.sub(r"\$(\d+)", lambda match: f"${used.index(int(match[1])) + 1}", sql)


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
        "nodes.read_assignments": ["2981", f"'{{{task}}}'"],
        "leases.read_accepted": ["1", f"'{{{task}}}'", "'{1}'", "'{1}'"],
        "tasks.read_specs": ["1", f"'{{{task}}}'"],
        "tasks.read_admitted": [f"'{{{task}}}'"],
        "audit.examine_tasks": [f"'{{{task}}}'"],
        "audit.examine_live": [f"'{{{task}}}'", "'60 s'", "'10 s'"],
        "read_inputs 0": [str(task), "0"],
        # It is live, and so nothing is forgotten.
        "history.forget": [f"'{{{task}}}'", "'{99999}'", str(task), str(task)],
    }
    known = {**STATEMENTS, **inner_statements()}
    return {
        name: await explain(conn, known[name], arguments=arguments, options=options)
        for name, arguments in given.items()
    }


PIECE = 2000


async def run_pieces(conn):
    """Run the audit's walks from the middle, to see how much they really touch."""
    middle = await conn.fetchval("select id from numbers where g = 90000")
    live, tasks = (
        "'{" + ", ".join(str(row["id"]) for row in rows) + "}'"
        for rows in (
            await conn.fetch(f"select id from live order by id desc limit {PIECE}"),
            await conn.fetch(f"select id from tasks order by id desc limit {PIECE}"),
        )
    )
    given = {
        "audit.read_live_ids": [str(middle), str(PIECE)],
        "audit.examine_live": [live, "'60 s'", "'10 s'"],
        "audit.read_task_ids": [str(middle), str(PIECE)],
        "audit.examine_tasks": [tasks],
        "audit.read_keys": ["50", "'key 1'", str(PIECE), "'30 d'"],
        "audit.read_lines": ["1", "1", "300", "'60 s'"],
    }
    options = "analyze, buffers, format json"
    return {
        name: await explain(conn, STATEMENTS[name], arguments=arguments, options=options)
        for name, arguments in given.items()
    }


PASSED = """
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost)
select g, 500, 1, 'waiting', 0, now(), now() - interval '1 hour' + g * interval '1 ms',
       '5 m', '1 h', 3, 'retry'
  from generate_series(1, 20000) g;
update live
   set status = 'running', attempt = 1, node_id = 42, incarnation_id = 2981,
       token = 1000000 + id, leased_at = now(), kill_at = now()
 where tenant_id = 500;
delete from live where tenant_id = 500;
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost)
select 20001, 500, 1, 'waiting', 0, now(), now(), '5 m', '1 h', 3, 'retry';
insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                  delay_tolerance, execution_cap, max_attempts, on_lost, attempt, node_id,
                  incarnation_id, token, leased_at, kill_at)
select 20002, 500, 1, 'running', 0, now(), now(), '5 m', '1 h', 3, 'retry', 1, 42, 2981,
       2000000, now(), now();
"""


async def run_behind_a_snapshot(postgres, name, conn):
    """Run what reads the queue while a snapshot keeps 20,000 tasks in it that have gone."""
    old = await asyncpg.connect(with_database(postgres, name))
    try:
        async with old.transaction(isolation="repeatable_read"):
            await old.fetch("select 1 from duly.shapes")
            await conn.execute("set enable_seqscan = on")
            await conn.execute(PASSED)
            await conn.execute("set enable_seqscan = off")
            known = await conn.fetchval("select start_by from live where id = 20001")
            given = {
                "leases.read_heads": ["'{500}'", "'{1}'", f"'{{\"{known}\"}}'", "'{200}'"],
                "leases.read_changes": ["'{2981}'", "1900000", "'{20002}'", "'{2000000}'"],
                "nodes.read_held": ["2981", "42", "1900000", "'{}'"],
            }
            options = "analyze, buffers, format json"
            return {
                name: await explain(conn, STATEMENTS[name], arguments=arguments, options=options)
                for name, arguments in given.items()
            }
    finally:
        await old.close()


@pytest.fixture(scope="module")
def plans(postgres):
    return asyncio.run(plans_of_all_states(postgres))


@pytest.mark.parametrize("state", STATES)
def test_every_statement_can_be_prepared(plans, state):
    prepared = {name for name in STATEMENTS if not name.startswith("migrate.")} - CALLS
    assert prepared <= plans[state].keys()


@pytest.mark.parametrize("state", STATES)
def test_no_statement_scans_what_grows(plans, state):
    found = {
        (name, node["Relation Name"])
        for name, plan in plans[state].items()
        if name not in RARE
        for table in HISTORY
        for node in scans(plan, table)
        if node["Node Type"] == "Seq Scan"
    }
    assert found == set()


HOT = {
    "leases.pairs_with_work": {"live_waiting"},
    "leases.read_heads": {"live_waiting"},
    "stock.read_stock": {"live_running"},
    "leases.read_changes": {"live_running", "live_pkey"},
    "leases.lock_unplaceable": {"live_waiting"},
    "leases.lock_attempts": {"live_pkey"},
    "leases.end_attempts": {"live_pkey"},
    "leases.finish_attempts": {"live_pkey"},
    "leases.release_due": {"live_due", "live_pkey"},
    "leases.next_due": {"live_due"},
    "leases.lock_orphans": {"live_running", "live_pkey"},
    "leases.read_vitals": {"live_running"},
    "nodes.read_held": {"live_running", "live_pkey"},
    "nodes.holds_attempt": {"live_pkey"},
    "tasks.insert_tasks": {"live_unique"},
    "tasks.read_holder": {"live_unique"},
    "tasks.lock_unstarted": {"live_pkey"},
    "tasks.update_task": {"live_pkey"},
    "backlog.count_waiting": {"live_waiting", "live_later"},
    "audit.read_live_ids": {"live_pkey"},
    "audit.examine_live": {"live_pkey"},
    "audit.examine_tasks": {"live_pkey"},
    "audit.read_lines": {"live_waiting"},
}


FIRING = {
    "schedules.next_due": {"schedules_due"},
    "schedules.lock_due": {"schedules_due"},
    "schedules.move": {"schedules_pkey"},
    "schedules.refuse": {"occurrences_by_task"},
    "schedules.occurrences": {"occurrences_pkey"},
    "schedules.newest": {"occurrences_pkey"},
    "schedules.read_ran": {"occurrences_pkey"},
    "schedules.read": {"schedules_by_tenant"},
    "views.read_tasks": {"occurrences_by_task", "occurrences_by_graph"},
}
"""What finds schedules and their occurrences, and by which index."""


@pytest.mark.parametrize("state", STATES)
def test_a_schedule_and_its_occurrences_are_found_by_their_index(plans, state):
    found = {
        name: indexes(plans[state][name], "schedules") | indexes(plans[state][name], "occurrences")
        for name in FIRING
    }
    assert found == FIRING


@pytest.mark.parametrize("state", STATES)
def test_a_hot_statement_goes_by_its_index(plans, state):
    assert {name: indexes(plans[state][name], "live") for name in HOT} == HOT


BY_COLUMN = {
    "tenants.by_key": {"keys": "hash =", "tenants": "id =", "users": "id ="},
    "tenants.hold": {"tenants": "id ="},
    "tasks.insert_tasks": {"submissions": "key ="},
    "tasks.read_submissions": {"submissions": "key ="},
    "buckets.lock_bucket": {"buckets": "tenant_id =", "tenants": "id ="},
    "buckets.settle_bucket": {"buckets": "tenant_id ="},
    "limits.read_used": {"buckets": "tenant_id ="},
    "quotas.give": {"tenants": "id ="},
    "users.to_log_in": {"tenants": "name =", "users": "tenant_id ="},
    "users.lock_login": {"users": "id =", "tenants": "id ="},
    "users.lock": {"users": "tenant_id ="},
    "users.read": {"users": "tenant_id =", "keys": "user_id ="},
    "users.remove": {"keys": "user_id ="},
    "keys.read": {"keys": "tenant_id =", "users": "id ="},
    "keys.lock": {"keys": "tenant_id ="},
    "keys.end_login": {"keys": "id ="},
    "keys.tidy_logins": {"keys": "id ="},
    "views.tenant_by_name": {"tenants": "name ="},
    "audit_log.read_of_tenant": {"audit_log": "tenant_id =", "tenants": "id ="},
    "history.read_aged": {"tasks": "tenant_id ="},
    "history.forget": {
        "tasks": "id =",
        "ends": "task_id =",
        "attempts": "task_id =",
        "former_specs": "task_id =",
        "dead_letters": "task_id =",
        "submissions": "key =",
        "live": "id =",
    },
    "usage.read": {"usage": "tenant_id =", "users": "id =", "tenants": "id ="},
}
"""Who asks for what is a tenant's, or his own, touches nothing of the others'."""


@pytest.mark.parametrize("state", STATES)
def test_what_a_request_asks_for_is_looked_up_and_not_looked_for(plans, state):
    found = [
        (name, table, scan["Node Type"], scan.get("Index Cond"))
        for name, tables in BY_COLUMN.items()
        for table, column in tables.items()
        for scan in scans(plans[state][name], table)
        if column not in scan.get("Index Cond", "") and scan["Node Type"] != "Tid Scan"
    ]
    assert found == []
    assert all(
        scans(plans[state][name], table) for name, tables in BY_COLUMN.items() for table in tables
    )


@pytest.mark.parametrize("state", STATES)
def test_tasks_find_their_terms_without_looking_through_all_of_them(plans, state):
    joins = [
        node["Node Type"]
        for node in nodes(plans[state]["tasks.insert_tasks"])
        if {child.get("Alias") for child in node.get("Plans", ())} >= {"each"}
    ]
    assert "Nested Loop" not in joins


@pytest.mark.parametrize("state", STATES)
def test_entries_of_rows_that_are_gone_get_marked(plans, state):
    found = {
        (name, node["Relation Name"])
        for name, plan in plans[state].items()
        for node in scans(plan, "live")
        if node["Node Type"] == "Bitmap Heap Scan"
    }
    assert found == set()


KNOWING = ("lease", "end_each", "attach", "settle", "request_c")
BY_ID = [
    "leases.lock_attempts",
    "leases.end_attempts",
    "leases.finish_attempts",
    "nodes.read_assignments",
    "nodes.holds_attempt",
    "tasks.lock_unstarted",
    "tasks.update_task",
    "audit.examine_live",
    "audit.examine_tasks",
    *(name for name in STATEMENTS if name.startswith("repairs.")),
    *(name for name in inner_statements() if name.startswith(KNOWING)),
]


@pytest.mark.parametrize("state", STATES)
def test_what_knows_its_tasks_walks_no_index(plans, state):
    found = [
        (name, node["Index Name"])
        for name in BY_ID
        for scan in scans(plans[state][name], "live")
        for node in nodes(scan)
        if "Index Name" in node and "id = " not in node.get("Index Cond", "")
    ]
    assert found == []


@pytest.mark.parametrize("state", STATES)
def test_edges_are_found_from_both_ends(plans, state):
    found = {
        name: indexes(plan, "edges")
        for name, plan in plans[state].items()
        if name.startswith(("attach", "settle")) and scans(plan, "edges")
    }
    assert list(found.values()) == [{"edges_pkey"}, {"edges_upstream_id_expr_idx"}]


@pytest.mark.parametrize(
    ("state", "name"),
    [*((state, "inputs.read_having") for state in STATES), ("run", "read_inputs 0")],
)
def test_inputs_are_read_one_after_the_other(plans, state, name):
    """So that whoever has enough of them reads no further."""
    plan = plans[state][name]
    for table, column in {"edges": "dependant_id =", "ends": "task_id ="}.items():
        found = scans(plan, table)
        assert found and all(column in scan.get("Index Cond", "") for scan in found), (table, found)
    assert "Sort" not in {node["Node Type"] for node in nodes(plan)}


@pytest.mark.parametrize("state", STATES)
def test_the_time_bounds_the_search_for_what_is_due(plans, state):
    [scan] = [
        node
        for node in nodes(plans[state]["leases.release_due"])
        if node.get("Index Name") == "live_due"
    ]
    assert "ready_at <=" in scan["Index Cond"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["leases.read_heads", "leases.lock_unplaceable"])
def test_only_the_lines_that_are_named_are_read(plans, state, name):
    [scan] = scans(plans[state][name], "live")
    assert "tenant_id = " in scan["Index Cond"]
    assert "shape_id = " in scan["Index Cond"]


@pytest.mark.parametrize("state", STATES)
def test_what_waits_is_never_sorted(plans, state):
    for name in HOT:
        for node in nodes(plans[state][name]):
            if node["Node Type"] in ("Sort", "Incremental Sort"):
                assert not indexes(node, "live") & {"live_waiting", "live_due"}, name


def test_a_known_id_visits_one_day(plans):
    for name, plan in plans["run"].items():
        for table in ("tasks", "attempts", "ends"):
            loops = {node["Relation Name"]: node["Actual Loops"] for node in scans(plan, table)}
            assert len([day for day, count in loops.items() if count]) <= 1, (name, loops)


def test_what_is_forgotten_is_found_by_its_id_everywhere(plans):
    for table in ("tasks", "attempts", "ends", "events", "edges"):
        found = [
            scan["Index Cond"]
            for node in nodes(plans["run"]["history.forget"])
            if node["Node Type"] == "ModifyTable" and parent(node["Relation Name"]) == table
            for scan in scans(node, table)
        ]
        assert found
        assert all("id = ANY" in condition for condition in found), (table, found)


def test_a_piece_of_the_audit_touches_no_more_than_its_rows(plans):
    for name, plan in plans["pieces"].items():
        touched = {
            node["Relation Name"]: (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            * node["Actual Loops"]
            for node in nodes(plan)
            if "Relation Name" in node
        }
        assert all(rows <= PIECE for rows in touched.values()), (name, touched)
        # In a table of 200,000 rows; a look-up by a key is three or four blocks.
        blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert blocks <= 40 * PIECE, (name, blocks)


def test_what_an_old_snapshot_keeps_is_not_walked_over(plans):
    for name, plan in plans["behind"].items():
        assert plan["Actual Rows"] == 1, name
        blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert blocks <= 40, (name, blocks)


@pytest.mark.parametrize("state", STATES)
def test_a_heartbeat_looks_at_its_own_incarnation(plans, state):
    for scan in scans(plans[state]["nodes.renew"], "incarnations"):
        assert any("id = " in node.get("Index Cond", "") for node in nodes(scan)), scan


@pytest.mark.parametrize("state", STATES)
def test_a_key_is_found_by_its_hash(plans, state):
    assert indexes(plans[state]["tenants.by_key"], "keys") == {"keys_hash_key"}
