"""Fills a store with millions of rows, copied from rows that Duly itself stored.

A template database keeps one task that was done and one that is not due, as Duly stored
them. A filled store repeats them with other ids, times and tenants, generated inside
PostgreSQL. So the rows stay valid whatever columns a later version adds.
"""

import asyncio
from collections.abc import Mapping

import asyncpg

from benchmarks import cluster, installation
from benchmarks.cluster import TEMPLATE, Cluster
from benchmarks.load import TRUE

FAR = "2099-01-01T00:00:00Z"
IDS = "(({second} + g / 131072) << 31) | (g % 131072)"
"""Ids as the sequencer of the first server makes them, in seconds that are long past."""
NOW = "select floor(extract(epoch from duly.now() - timestamptz '2026-01-01 00:00:00+00'))::bigint"
AGO_WAITING, AGO_FINISHED = 600, 3600
LANES = 2
"""Connections that fill at once: one for each core."""
KEPT = """
create schema bench;
create table bench.done_tasks as select * from duly.tasks where id = {done};
create table bench.attempts as select * from duly.attempts where task_id = {done};
create table bench.ends as select * from duly.ends where task_id = {done};
create table bench.tasks as select * from duly.tasks where id = {due};
create table bench.live as select * from duly.live where id = {due};
select duly.remove_node(id) from duly.nodes;
truncate duly.tasks, duly.live, duly.attempts, duly.ends, duly.events, duly.submissions;
"""


def make_template(postgres: Cluster) -> None:
    """Make the database that stores are copies of, by running one task to its end."""
    if postgres.has(TEMPLATE):
        return
    cluster.run(postgres.dsn, f"create database {TEMPLATE}")
    dsn = postgres.dsn_of(TEMPLATE)
    with installation.up(postgres, dsn) as place, place.client() as client:
        done = client.submit(**TRUE)["id"]
        due = client.submit(**TRUE, run_at=FAR)["id"]
        if client.wait(done, timeout=60)["status"] != "done":
            raise RuntimeError("the first task failed")
    cluster.run(dsn, KEPT.format(done=int(done), due=int(due)), "vacuum analyze")


def fill(dsn: str, *, waiting: int = 0, finished: int = 0, tenants: int = 1) -> None:
    """Store so many tasks that wait, of so many tenants in turn, and so many that have ended."""
    if tenants > 1:
        cluster.run(dsn, _tenants(tenants))
    asyncio.run(_fill(dsn, waiting, finished, tenants))
    beyond = f"select setval('duly.tokens', {finished} + nextval('duly.tokens'))"
    # What has ended long ago is in the books.
    booked = "update duly.usage_watermark set booked_to = (select last_value from duly.entries)"
    cluster.run(dsn, beyond, booked, "vacuum (analyze)", "checkpoint")


def _tenants(count: int) -> str:
    return (
        "insert into duly.tenants (name, plan) select 'bench ' || g, t.plan "
        f"from generate_series(2, {count}) g, (select plan from duly.tenants limit 1) t"
    )


async def _fill(dsn: str, waiting: int, finished: int, tenants: int) -> None:
    pool = await asyncpg.create_pool(
        dsn, min_size=LANES, max_size=LANES, server_settings={"synchronous_commit": "off"}
    )
    async with pool:
        first: int = await pool.fetchval("select min(id) from duly.tenants")
        # Read once: rows that belong together must not get ids of different seconds.
        now: int = await pool.fetchval(NOW)
        statements: list[str] = []
        for low, high in _ranges(waiting):
            statements += await _waiting(pool, low, high, now - AGO_WAITING, first, tenants)
        for low, high in _ranges(finished):
            statements += await _finished(pool, low, high, now - AGO_FINISHED)
        queue = iter(statements)

        async def work() -> None:
            for statement in queue:
                await pool.execute(statement)

        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(work())


def _ranges(count: int, step: int = 100_000) -> list[tuple[int, int]]:
    return [(low, min(low + step, count) - 1) for low in range(0, count, step)]


async def _waiting(
    pool: asyncpg.Pool, low: int, high: int, second: int, first: int, tenants: int
) -> list[str]:
    tenant = f"{first} + g % {tenants}"
    task = {"id": IDS.format(second=second), "tenant_id": tenant, "run_at": "null"}
    live = {
        "id": task["id"],
        "tenant_id": tenant,
        "status": "'waiting'",
        "ready_at": "duly.now()",
        "start_by": "date_trunc('second', duly.now() + t.delay_tolerance)",
    }
    return [
        await _copies(pool, "duly.tasks", "bench.tasks", task, low, high),
        await _copies(pool, "duly.live", "bench.live", live, low, high),
    ]


async def _finished(pool: asyncpg.Pool, low: int, high: int, second: int) -> list[str]:
    ids = IDS.format(second=second)
    attempt = {"task_id": ids, "token": "g"}
    return [
        await _copies(pool, "duly.tasks", "bench.done_tasks", {"id": ids}, low, high),
        await _copies(pool, "duly.attempts", "bench.attempts", attempt, low, high),
        await _copies(pool, "duly.ends", "bench.ends", {"task_id": ids}, low, high),
    ]


async def _copies(
    pool: asyncpg.Pool, to: str, of: str, changed: Mapping[str, str], low: int, high: int
) -> str:
    """Return the statement that copies the row of one table into another, again and again."""
    schema, _, table = to.partition(".")
    columns = [
        row[0]
        for row in await pool.fetch(
            "select column_name from information_schema.columns "
            "where table_schema = $1 and table_name = $2 and is_generated = 'NEVER' "
            "order by ordinal_position",
            schema,
            table,
        )
    ]
    values = ", ".join(changed.get(name, f't."{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    return (
        f"insert into {to} ({names}) select {values} from {of} t, "
        f"generate_series({low}::bigint, {high}::bigint) g"
    )
