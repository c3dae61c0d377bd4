"""What a plan does not keep goes before its day: whole, and only if nobody needs it."""

import asyncio

import pytest

from duly.store.maintenance import history
from duly.store.maintenance.history import AgedTask, DeletedTask, RetentionCutoff
from tests.store.rows import add_attempt, add_task, end_task, first_id

TABLES = {
    "tasks": "id", "attempts": "task_id", "ends": "task_id", "events": "task_id",
    "former_specs": "task_id", "dead_letters": "task_id", "edges": "dependant_id",
}  # fmt: skip


async def add_all(conn, task, *, live=False, key=None, booked=True):
    """Store a task that has a row wherever it can have one."""
    await add_task(conn, task, live=live, key=key)
    await add_attempt(conn, task)
    await conn.execute("insert into duly.former_specs values ($1, 1, 1, 1, 'basic', '5 m')", task)
    await conn.execute("insert into duly.dead_letters values ($1, 1, 'x', now())", task)
    await conn.execute(
        "insert into duly.events (task_id, tenant_id, at, kind) values ($1, 1, now(), 'x')", task
    )
    await add_edge(conn, task, task - 1000)
    if booked:
        await conn.execute(
            "update duly.usage_watermark set booked_to = (select last_value from duly.entries)"
        )


async def add_edge(conn, dependant, upstream):
    await conn.execute(
        "insert into duly.edges values ($1, $2, 1, 'success', true)", dependant, upstream
    )


async def forget(conn, *tasks, days=1):
    """Forget what ended before the day that many days from today."""
    day = await conn.fetchval("select duly.day_of(clock_timestamp()) + $1", days)
    found = await history.delete_aged(conn, [AgedTask(1, day, task) for task in tasks])
    return {one.id for one in found}


async def stored(conn, task):
    return {
        table
        for table, key in TABLES.items()
        if await conn.fetchval(f"select count(*) from duly.{table} where {key} = $1", task)
    }


async def test_all_that_belongs_to_a_task_goes_and_nothing_of_others(conn):
    task = await first_id(conn) + 1
    await add_all(conn, task)
    await add_all(conn, task + 1)
    assert await forget(conn, task) == {task}
    assert await stored(conn, task) == set()
    assert await stored(conn, task + 1) == TABLES.keys()


async def test_what_is_live_stays_and_what_ended_on_that_day_or_later(conn):
    lives, ended = await first_id(conn) + 1, await first_id(conn) + 2
    await add_all(conn, lives, live=True)
    await add_all(conn, ended)
    assert await forget(conn, lives, ended, days=0) == set()
    assert await forget(conn, lives, ended) == {ended}
    assert await stored(conn, lives) == TABLES.keys() - {"ends"}


async def test_what_is_in_no_books_stays_until_it_is(conn):
    task = await first_id(conn) + 1
    await add_all(conn, task, booked=False)
    assert await forget(conn, task) == set()
    await conn.execute(
        "update duly.usage_watermark set booked_to = (select last_value from duly.entries)"
    )
    assert await forget(conn, task) == {task}


@pytest.mark.parametrize("days", [0, 3])
async def test_what_a_live_task_depends_on_stays_until_that_ends(conn, days):
    task = await first_id(conn) + 1
    dependant = await first_id(conn, days) + 7
    await add_all(conn, task)
    await add_task(conn, dependant)
    await add_edge(conn, dependant, task)
    assert await forget(conn, task) == set()
    await end_task(conn, dependant)
    assert await forget(conn, task) == {task}


async def test_what_dependants_have_not_been_told_of_stays(conn):
    task = await first_id(conn) + 1
    await add_all(conn, task)
    await conn.execute("insert into duly.ended_upstreams values ($1, 1, 'done', 0)", task)
    assert await forget(conn, task) == set()
    await conn.execute("delete from duly.ended_upstreams")
    assert await forget(conn, task) == {task}


async def test_a_graph_goes_with_its_last_task(conn):
    first = await first_id(conn) + 1
    tasks = [first, first + 1]
    for task in tasks:
        await add_task(conn, task, live=False)
    await conn.execute("update duly.tasks set graph_id = $1", first)
    await conn.execute(
        "insert into duly.graphs values ($1::bigint, 1, null, 'g', $2, now())", first, tasks
    )
    for task, left in zip(tasks, (1, 0), strict=True):
        await forget(conn, task)
        assert await conn.fetchval("select count(*) from duly.graphs") == left


async def test_it_is_told_who_has_run_and_may_have_left_a_log(conn):
    first = await first_id(conn) + 1
    for task, attempts in ((first, 0), (first + 1, 2)):
        await add_task(conn, task, live=False)
        await conn.execute("update duly.ends set attempt = $2 where task_id = $1", task, attempts)
    day = await conn.fetchval("select duly.day_of(clock_timestamp()) + 1")
    found = await history.delete_aged(conn, [AgedTask(1, day, first), AgedTask(1, day, first + 1)])
    assert sorted(found, key=lambda one: one.id) == [
        DeletedTask(first, None, has_run=False),
        DeletedTask(first + 1, None, has_run=True),
    ]


async def test_only_tenants_that_keep_less_are_gone_through_in_their_order(conn):
    for plan, days in (("a", 3), ("b", 30), ("c", 60)):
        await conn.execute(
            "insert into duly.plans (name, delay_tolerance, execution_cap, max_execution_cap,"
            " weight, retention) values ($1, '5 m', '1 h', '1 h', 1, make_interval(days => $2))",
            plan,
            days,
        )
        await conn.execute("insert into duly.tenants (name, plan) values ($1, $1)", plan)
    today = await conn.fetchval("select duly.day_of(clock_timestamp())")
    ids = dict(await conn.fetch("select name, id from duly.tenants"))
    first = await conn.fetchval("select duly.first_id_of($1)", today - 3)
    day = await conn.fetchval("select interval '30 days'")
    assert await history.read_cutoffs(conn, history=day) == [
        RetentionCutoff(ids["a"], today - 3, first)
    ]


async def test_tasks_are_found_by_tenant_from_where_one_left_off(conn):
    first = await first_id(conn)
    for number, tenant in enumerate((1, 2, 1, 1, 2, 3), 1):
        await add_task(conn, first + number)
        await conn.execute(
            "update duly.tasks set tenant_id = $2 where id = $1", first + number, tenant
        )
    day = await conn.fetchval("select duly.day_of(clock_timestamp())") + 1
    tenants = [
        RetentionCutoff(2, day, 0),
        RetentionCutoff(1, day, 0),
        RetentionCutoff(3, day - 1, 0),
    ]
    found = await history.read_aged(conn, tenants, [0, first + 2, 0], limit=10)
    assert [(one.tenant_id, one.id - first) for one in found] == [(2, 2), (2, 5), (1, 3), (1, 4)]
    assert await history.read_aged(conn, tenants, [0, first + 2, 0], limit=3) == found[:3]


async def test_who_takes_a_dead_letter_while_it_is_forgotten_finds_none(conn, connect):
    task = await first_id(conn) + 1
    await add_all(conn, task)
    other = await connect()
    async with asyncio.TaskGroup() as group, conn.transaction():
        assert await forget(conn, task) == {task}
        taking = group.create_task(
            other.fetchval("delete from duly.dead_letters where task_id = $1 returning 1", task)
        )
        pid = other.get_server_pid()
        while not await conn.fetchval("select cardinality(pg_blocking_pids($1)) > 0", pid):
            pass
    assert taking.result() is None
