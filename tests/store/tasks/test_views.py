"""What the API reads: only the caller's own, by an index, whatever the plan."""

import itertools
import re
from datetime import UTC, datetime, timedelta

import pytest

from duly.model.node import NodeStatus
from duly.model.task import Status
from duly.store.fleet import overview
from duly.store.tasks import views
from duly.store.tasks.views import MAX_ID, TaskFilter

DAYS = 6
TASKS = 3000
FILL = f"""
    call ensure_days(day_of(duly.now()) - {DAYS}, day_of(duly.now()));
    insert into tenants (name, plan) values ('small', 'unlimited');
    insert into shapes (needs, key) values ('{{"cpu_milli": 500}}', 'a');
    create temporary table seeds as
    select n, n % {DAYS} as day, first_id_of(day_of(duly.now()) - n % {DAYS}) + n as id,
           case when n / {DAYS} % 100 = 0 then 2 else 1 end as tenant_id, n * 7919 % 50 as dice
      from generate_series(1, {TASKS}) n;
    insert into tasks
    select id, tenant_id, null, 1, 'name-' || n / {DAYS} % 10, 'basic', '{{"command": ["true"]}}',
           '{{}}', '5 min', '1 h', 3, 'retry', 0, null, null, null, 0,
           duly.now() - (day || ' days')::interval
      from seeds;
    insert into ends
    select id, tenant_id,
           (case when dice < 5 then 'failed' when dice < 9 then 'cancelled' else 'done' end)
           ::status, 'succeeded', 0, null, 1, 0, 0, null, duly.now(), duly.now(), null,
           duly.now() - (day || ' days')::interval, null
      from seeds where dice < 40;
    insert into live (id, tenant_id, shape_id, status, priority, ready_at, start_by,
                      delay_tolerance, execution_cap, max_attempts, on_lost)
    select id, tenant_id, 1, 'waiting', 0, duly.now(), duly.now(), '5 min', '1 h', 3, 'retry'
      from seeds where dice >= 40;
    analyze tasks, ends, live, attempts, events, dead_letters, tenants, shapes;
"""


@pytest.fixture
async def conn(database):
    async with database.connection() as conn:
        yield conn


@pytest.fixture
async def full(conn):
    """A database with a few thousand tasks over several days, of a large and a small tenant."""
    await conn.execute(FILL)
    return conn


async def test_every_statement_can_be_prepared_and_names_a_tenant(conn):
    for name, statement in views.SQL.items():
        await conn.prepare(statement)
        if name != "tenant_by_name":
            assert re.search(r"^--   \$1 tenant_id", statement, re.MULTILINE), name
    for statement in overview.SQL.values():
        await conn.prepare(statement)


async def generic_plan(conn, name, arguments, options="costs off"):
    """Return the plan that serves every value of the parameters."""
    # A day without tasks is read as it is; what counts is which way is taken when it is not.
    await conn.execute("set enable_seqscan = off; set plan_cache_mode = force_generic_plan")
    statement = re.sub(r"^--.*\n", "", views.SQL[name], flags=re.MULTILINE)
    await conn.execute(f"prepare {name} as {statement}")
    rows = await conn.fetch(f"explain ({options}) execute {name} ({arguments})")
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pick_newest", f"1, null, null, null, {MAX_ID}, 51"),
        ("pick_named", f"1, null, null, null, {MAX_ID}, 51, 'name-3', true"),
    ],
)
async def test_a_list_is_read_through_the_index_of_its_tenant(full, name, arguments):
    filled = {row[0] for row in await full.fetch("select distinct day_of(id) from tasks")}
    lines = await generic_plan(full, name, arguments)
    scans = {
        int(found[2]): found[1]
        for line in lines
        if (found := re.search(r"Scan.* using (\w+) on tasks_(\d+)", line))
    }
    assert filled <= scans.keys()
    assert [scans[day] for day in filled if "tenant_id" not in scans[day]] == []


@pytest.mark.parametrize(
    ("name", "rest"),
    [("read_tasks", "9999, 10"), ("read_log_end", "null"), ("read_result", ""), ("is_live", "")],
)
async def test_a_task_is_read_by_its_id_in_its_day_and_nowhere_else(full, name, rest):
    task = await full.fetchval("select max(task_id) from ends where tenant_id = 1")
    which = f"array[{task}]::bigint[]" if name == "read_tasks" else str(task)
    arguments = ", ".join(filter(None, ["1", which, rest]))
    lines = await generic_plan(full, name, arguments, "analyze, timing off, summary off")
    executed = [line for line in lines if "Scan" in line and "never executed" not in line]
    assert executed
    assert [line for line in executed if not re.search(r"actual rows=[01](\.00)? ", line)] == []
    assert not any("Rows Removed" in line for line in lines)
    looked_into = {found[1] for line in executed if (found := re.search(r"_(\d+) \w+ ", line))}
    assert len(looked_into) <= 1, looked_into


async def test_each_tenant_finds_its_own_and_only_that(full):
    for tenant in (1, 2):
        count = await full.fetchval("select count(*) from tasks where tenant_id = $1", tenant)
        for which in (TaskFilter(), TaskFilter(statuses=frozenset(Status))):
            seen: list[int] = []
            before = MAX_ID
            while page := await views.pick(full, tenant, which, before=before, limit=1000):
                seen += page
                before = page[-1]
            assert len(seen) == len(set(seen)) == count
            assert seen == sorted(seen, reverse=True)
            owners = await full.fetch(
                "select distinct tenant_id from tasks where id = any($1)", seen
            )
            assert [row[0] for row in owners] == [tenant]


async def test_statuses_part_the_tasks_without_rest(full):
    found = {}
    for status in Status:
        which = TaskFilter(statuses=frozenset({status}))
        found[status] = await views.pick(full, 2, which, before=MAX_ID, limit=1000)
    everything = await views.pick(full, 2, TaskFilter(), before=MAX_ID, limit=1000)
    assert sorted(itertools.chain(*found.values())) == sorted(everything)
    assert len(found[Status.FAILED]) > 0


async def test_since_finds_what_is_as_young_and_no_older(full):
    now = await full.fetchval("select duly.now()")
    for days in range(DAYS):
        since = now - timedelta(days=days, minutes=5)
        ids = await views.pick(
            full, 1, TaskFilter(since=since, name="name-3"), before=MAX_ID, limit=1000
        )
        expected = await full.fetchval(
            "select count(*) from tasks where tenant_id = 1 and name = 'name-3'"
            " and submitted_at >= $1",
            since,
        )
        assert len(ids) == expected > 0


async def test_a_task_of_another_tenant_is_none(full):
    mine = (await views.pick(full, 2, TaskFilter(), before=MAX_ID, limit=1))[0]
    assert (await views.read(full, 2, mine)).id == mine
    assert await views.read(full, 1, mine) is None
    assert await views.read_many(full, 1, [mine]) == []
    assert await views.read_attempts(full, 1, mine) == []
    assert await views.read_log_end(full, 1, mine, None) is None
    assert await views.read_result(full, 1, mine) is None
    assert not await views.is_live(full, 1, mine)
    assert not await views.is_dead_letter(full, 1, mine)


async def test_what_has_left_its_status_since_it_was_picked_is_left_out(full):
    which = TaskFilter(statuses=frozenset({Status.WAITING}))
    ids = await views.pick(full, 1, which, before=MAX_ID, limit=10)
    await full.execute("update live set status = 'scheduled' where id = $1", ids[0])
    found = await views.read_many(full, 1, ids, which.statuses)
    assert [view.id for view in found] == ids[1:]


async def test_counts_are_of_the_tenant_and_of_the_window(full):
    day = await overview.count_tasks(full, 2, window=timedelta(hours=12))
    month = await overview.count_tasks(full, 2, window=timedelta(days=30))
    ended = await full.fetchval("select count(*) from ends where tenant_id = 2")
    assert month.done + month.failed + month.cancelled == ended
    assert day.done < month.done
    assert month.waiting == await full.fetchval("select count(*) from live where tenant_id = 2")


async def test_how_many_go_first_is_counted_by_rank(full):
    rows = await full.fetch(
        "select id from live where tenant_id = 1 order by start_by, priority desc, id limit 5"
    )
    ahead = [await views.count_ahead(full, 1, row["id"], limit=1000) for row in rows]
    assert ahead == [0, 1, 2, 3, 4]
    assert await views.count_ahead(full, 1, rows[4]["id"], limit=2) == 2
    assert await views.count_ahead(full, 2, rows[4]["id"], limit=1000) == 0


async def test_a_node_that_never_had_an_agent_is_lost(conn):
    await conn.execute(
        "insert into nodes (name, key_hash, created_at) values ('a', 'x', duly.now())"
    )
    (node,) = await overview.read_nodes(conn)
    assert (node.status, node.tasks, node.last_heartbeat_at) == (NodeStatus.LOST, 0, None)


async def test_the_time_and_the_version_come_from_the_database(conn):
    lead = await overview.read_leader(conn)
    assert abs(lead.time - datetime.now(UTC)) < timedelta(minutes=1)
    assert lead.version
    assert lead.leader is None
    assert await overview.is_migrated(conn)
