"""History comes and goes by the day, and nothing that is live goes with it."""

from datetime import timedelta

import pytest

from duly.store.maintenance import history
from tests.store.rows import add_attempt, add_node, add_task, end_task, first_id

MONTH = timedelta(days=30)
WEEK = timedelta(days=7)


async def days(conn, parent="tasks"):
    """Return the days that have a partition, counted from today."""
    rows = await conn.fetch(
        "select substring(c.relname from '_(\\d+)$')::int - duly.day_of(clock_timestamp()) as day "
        "from pg_inherits i join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = ('duly.' || $1)::regclass and c.relname !~ 'rest' order by 1",
        parent,
    )
    return [row["day"] for row in rows]


async def where(conn, task, table="tasks", key="id"):
    """Return the partition that a task is in."""
    return await conn.fetchval(
        f"select tableoid::regclass::text from duly.{table} where {key} = $1", task
    )


@pytest.mark.parametrize("parent", ["tasks", "attempts", "ends", "events", "edges"])
async def test_partitions_exist_a_week_ahead(conn, parent):
    assert await days(conn, parent) == list(range(-1, 9))


async def test_days_are_made_once_and_ahead_of_time(conn, set_ahead):
    await history.ensure_days(conn)
    assert await days(conn) == list(range(-1, 9))
    await set_ahead("3 days")
    await history.ensure_days(conn)
    assert await days(conn) == list(range(-1, 12))


async def test_a_task_without_a_day_is_stored_and_comes_home_when_its_day_is_made(conn, set_ahead):
    task = await first_id(conn, 30)
    await add_task(conn, task)
    await add_attempt(conn, task)
    await conn.execute(
        "insert into duly.events (task_id, tenant_id, at, kind) values ($1, 1, now(), 'x')", task
    )
    assert await where(conn, task) == "tasks_rest"
    await set_ahead("30 days")
    await history.ensure_days(conn)
    assert await where(conn, task) != "tasks_rest"
    assert await where(conn, task, "attempts", "task_id") != "attempts_rest"
    assert await where(conn, task, "events", "task_id") != "events_rest"
    assert await conn.fetchval("select count(*) from duly.tasks") == 1


async def test_events_get_their_numbers_in_days_made_later(conn, set_ahead):
    await set_ahead("20 days")
    await history.ensure_days(conn)
    task = await first_id(conn)
    for _ in range(2):
        await conn.execute(
            "insert into duly.events (task_id, tenant_id, at, kind) values ($1, 1, now(), 'x')",
            task,
        )
    assert await conn.fetchval("select count(distinct id) from duly.events") == 2


async def test_only_days_out_of_retention_are_named(conn, set_ahead):
    today = await conn.fetchval("select duly.day_of(duly.now())")
    assert await history.read_days(conn, older_than=MONTH) == []
    await set_ahead("31 days")
    assert await history.read_days(conn, older_than=MONTH) == [today - 1, today]


async def test_dropping_a_day_keeps_what_is_live_with_its_attempts_and_events(conn):
    first = await first_id(conn)
    day = await conn.fetchval("select duly.day_of($1::bigint)", first)
    lives, ended = first + 1, first + 2
    await add_task(conn, lives)
    await add_task(conn, ended, live=False)
    for task in (lives, ended):
        await add_attempt(conn, task)
        await conn.execute(
            "insert into duly.events (task_id, tenant_id, at, kind) values ($1, 1, now(), 'x')",
            task,
        )
        await conn.execute("insert into duly.dead_letters values ($1, 1, 'x', now())", task)
    await conn.execute(
        "update duly.usage_watermark set booked_to = (select last_value from duly.entries)"
    )
    await history.drop_day(conn, day)
    for table, key in (("tasks", "id"), ("attempts", "task_id"), ("events", "task_id")):
        assert await where(conn, lives, table, key) == f"{table}_rest"
        assert await where(conn, ended, table, key) is None
    assert await conn.fetchval("select count(*) from duly.ends") == 0
    assert await conn.fetchval("select id from duly.live") == lives
    assert 0 not in await days(conn)


async def test_a_survivor_can_still_end_and_is_forgotten_later(conn, set_ahead):
    task = await first_id(conn) + 1
    await add_task(conn, task)
    await history.drop_day(conn, await conn.fetchval("select duly.day_of($1::bigint)", task))
    await end_task(conn, task)
    assert await where(conn, task, "ends", "task_id") == "ends_rest"
    assert await history.drop_outlived(conn, older_than=MONTH, limit=10) == 0
    await set_ahead("31 days")
    assert await history.drop_outlived(conn, older_than=MONTH, limit=10) == 1
    assert await where(conn, task) is None


async def test_a_key_is_kept_while_its_task_lives_and_a_week_longer(conn, set_ahead):
    task = await first_id(conn) + 1
    await add_task(conn, task, key="a")
    await set_ahead("100 days")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 0
    await history.ensure_days(conn)
    await end_task(conn, task)
    await set_ahead("106 days")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 0
    await set_ahead("108 days")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 1


async def test_a_key_is_kept_a_week_longer_though_the_day_of_its_task_is_dropped(conn, set_ahead):
    task = await first_id(conn) + 1
    await add_task(conn, task, key="a")
    await add_task(conn, task + 1)
    await conn.execute(
        "insert into duly.submissions values (1, 'b', 'x', $1, $2, duly.now())",
        task + 1,
        [task + 1],
    )
    await set_ahead("29 days")
    await history.ensure_days(conn)
    for ended in (task, task + 1):
        await end_task(conn, ended)
    await history.drop_day(conn, await conn.fetchval("select duly.day_of($1::bigint)", task))
    assert await where(conn, task) is None
    await set_ahead("35 days")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 0
    await set_ahead("37 days")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 2


async def test_what_a_live_task_depends_on_outlives_its_day(conn, set_ahead):
    upstream = await first_id(conn) + 1
    other, here, later = upstream + 1, upstream + 2, await first_id(conn, 3)
    await add_task(conn, upstream, live=False)
    await add_task(conn, other, live=False)
    await add_task(conn, here, live=False)
    await add_task(conn, later)
    for dependant, awaited in ((here, other), (later, upstream)):
        await conn.execute(
            "insert into duly.edges values ($1, $2, 1, 'always', false)", dependant, awaited
        )
        await conn.execute("insert into duly.dead_letters values ($1, 1, 'x', now())", awaited)
    await set_ahead("31 days")
    await history.drop_day(conn, await conn.fetchval("select duly.day_of($1::bigint)", upstream))
    assert await where(conn, upstream, "ends", "task_id") == "ends_rest"
    assert await where(conn, other) is None
    letters = await conn.fetch("select task_id from duly.dead_letters")
    assert [row["task_id"] for row in letters] == [upstream]
    assert await history.drop_outlived(conn, older_than=MONTH, limit=10) == 0
    await end_task(conn, later)
    assert await history.drop_outlived(conn, older_than=MONTH, limit=10) == 1
    assert await where(conn, upstream) is None


async def test_a_key_of_a_batch_is_kept_while_any_task_of_it_lives(conn, set_ahead):
    first = await first_id(conn)
    await add_task(conn, first + 1, live=False)
    await add_task(conn, first + 2)
    await conn.execute(
        "insert into duly.submissions values (1, 'b', 'x', $1, $2, duly.now())",
        first + 1,
        [first + 1, first + 2],
    )
    await set_ahead("100 days")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 0
    await conn.execute("delete from duly.live")
    assert await history.drop_submissions(conn, older_than=WEEK, limit=10) == 1


async def test_an_incarnation_is_kept_while_something_runs_on_it(conn, set_ahead):
    await add_node(conn, 1, ended=True)
    await add_node(conn, 2, ended=True)
    await conn.execute(
        "insert into duly.live (id, tenant_id, shape_id, status, priority, ready_at, start_by, "
        "delay_tolerance, execution_cap, max_attempts, on_lost, node_id, incarnation_id, token, "
        "leased_at) values (1, 1, 1, 'running', 0, now(), now(), '5 m', '1 h', 3, 'retry', "
        "1, 1, 1, now())"
    )
    await set_ahead("31 days")
    await history.drop_leftovers(conn, older_than=MONTH)
    assert [row["id"] for row in await conn.fetch("select id from duly.incarnations")] == [1]


async def test_edges_stay_as_long_as_their_dependants(conn, set_ahead):
    upstream = await first_id(conn) + 1
    lives, ended = upstream + 1, upstream + 2
    await add_task(conn, upstream, live=False)
    await add_task(conn, lives)
    await add_task(conn, ended, live=False)
    for task in (lives, ended):
        await conn.execute(
            "insert into duly.edges values ($1, $2, 1, 'success', true)", task, upstream
        )
        await conn.execute(
            "insert into duly.graphs values ($1::bigint, 1, null, 'g', array[$1::bigint], now())",
            task,
        )
    await history.drop_day(conn, await conn.fetchval("select duly.day_of($1::bigint)", lives))
    assert await where(conn, lives, "edges", "dependant_id") == "edges_rest"
    assert await where(conn, ended, "edges", "dependant_id") is None
    await end_task(conn, lives)
    await set_ahead("31 days")
    assert await history.drop_graphs(conn, older_than=MONTH, limit=10) == 1
    # With the upstream, which was kept because its dependant was live.
    assert await history.drop_outlived(conn, older_than=MONTH, limit=10) == 2
    assert await where(conn, lives, "edges", "dependant_id") is None
    assert await history.drop_graphs(conn, older_than=MONTH, limit=10) == 1
