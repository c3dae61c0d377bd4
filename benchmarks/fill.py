"""Fills a store with millions of rows, copied from rows that Duly itself stored.

A template database holds one task that is done and one that is scheduled, as Duly stored them. A
filled store repeats their rows with other ids, times and tenants, generated inside PostgreSQL. So
the rows stay valid whatever columns a later version adds.
"""

import asyncio
from collections.abc import Mapping

import asyncpg

from benchmarks import cluster, installation
from benchmarks.cluster import TEMPLATE, Cluster
from benchmarks.load import TRUE_TASK

FAR_FUTURE = "2099-01-01T00:00:00Z"
IDS = "(({second} + g / 131072) << 31) | (g % 131072)"
"""Task ids as the sequencer of the first server would have assigned them in the past."""
NOW = "select floor(extract(epoch from duly.now() - timestamptz '2026-01-01 00:00:00+00'))::bigint"
WAITING_AGE_SECONDS, FINISHED_AGE_SECONDS = 600, 3600
CONNECTIONS = 2
"""Concurrent connections: one for each core."""
KEEP_TEMPLATE_ROWS = """
create schema bench;
create table bench.done_tasks as select * from duly.tasks where id = {done};
create table bench.attempts as select * from duly.attempts where task_id = {done};
create table bench.ends as select * from duly.ends where task_id = {done};
create table bench.tasks as select * from duly.tasks where id = {scheduled};
create table bench.live as select * from duly.live where id = {scheduled};
select duly.remove_node(id) from duly.nodes;
truncate duly.tasks, duly.live, duly.attempts, duly.ends, duly.events, duly.submissions;
"""


def make_template(postgres: Cluster) -> None:
    """Create the database that stores are copied from, by running one task to its end."""
    if postgres.has(TEMPLATE):
        return
    cluster.run(postgres.dsn, f"create database {TEMPLATE}")
    dsn = postgres.dsn_of(TEMPLATE)
    with installation.up(postgres, dsn) as instance, instance.client() as client:
        done = client.submit(**TRUE_TASK)["id"]
        scheduled = client.submit(**TRUE_TASK, run_at=FAR_FUTURE)["id"]
        if client.wait(done, timeout=60)["status"] != "done":
            raise RuntimeError("the first task failed")
    cluster.run(
        dsn, KEEP_TEMPLATE_ROWS.format(done=int(done), scheduled=int(scheduled)), "vacuum analyze"
    )


def fill(dsn: str, *, waiting: int = 0, finished: int = 0, tenants: int = 1) -> None:
    """Add `waiting` tasks, spread evenly over `tenants`, and `finished` tasks that have ended."""
    if tenants > 1:
        cluster.run(dsn, _tenants(tenants))
    asyncio.run(_fill(dsn, waiting, finished, tenants))
    advance_tokens = f"select setval('duly.tokens', {finished} + nextval('duly.tokens'))"
    # Finished tasks count as already included in usage.
    mark_booked = (
        "update duly.usage_watermark set booked_to = (select last_value from duly.entries)"
    )
    cluster.run(dsn, advance_tokens, mark_booked, "vacuum (analyze)", "checkpoint")


def _tenants(count: int) -> str:
    return (
        "insert into duly.tenants (name, plan) select 'bench ' || g, t.plan "
        f"from generate_series(2, {count}) g, (select plan from duly.tenants limit 1) t"
    )


async def _fill(dsn: str, waiting: int, finished: int, tenants: int) -> None:
    pool = await asyncpg.create_pool(
        dsn,
        min_size=CONNECTIONS,
        max_size=CONNECTIONS,
        server_settings={"synchronous_commit": "off"},
    )
    async with pool:
        first_tenant: int = await pool.fetchval("select min(id) from duly.tenants")
        # Read once: the rows of one task must get the same id.
        now: int = await pool.fetchval(NOW)
        statements: list[str] = []
        for low, high in _ranges(waiting):
            statements += await _waiting(
                pool, low, high, now - WAITING_AGE_SECONDS, first_tenant, tenants
            )
        for low, high in _ranges(finished):
            statements += await _finished(pool, low, high, now - FINISHED_AGE_SECONDS)
        queue = iter(statements)

        async def work() -> None:
            for statement in queue:
                await pool.execute(statement)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())


def _ranges(count: int, step: int = 100_000) -> list[tuple[int, int]]:
    return [(low, min(low + step, count) - 1) for low in range(0, count, step)]


async def _waiting(
    pool: asyncpg.Pool, low: int, high: int, second: int, first_tenant: int, tenants: int
) -> list[str]:
    tenant = f"{first_tenant} + g % {tenants}"
    task = {"id": IDS.format(second=second), "tenant_id": tenant, "run_at": "null"}
    live = {
        "id": task["id"],
        "tenant_id": tenant,
        "status": "'waiting'",
        "ready_at": "duly.now()",
        "start_by": "date_trunc('second', duly.now() + t.delay_tolerance)",
    }
    return [
        await _copy_statement(pool, "duly.tasks", "bench.tasks", task, low, high),
        await _copy_statement(pool, "duly.live", "bench.live", live, low, high),
    ]


async def _finished(pool: asyncpg.Pool, low: int, high: int, second: int) -> list[str]:
    ids = IDS.format(second=second)
    attempt = {"task_id": ids, "token": "g"}
    return [
        await _copy_statement(pool, "duly.tasks", "bench.done_tasks", {"id": ids}, low, high),
        await _copy_statement(pool, "duly.attempts", "bench.attempts", attempt, low, high),
        await _copy_statement(pool, "duly.ends", "bench.ends", {"task_id": ids}, low, high),
    ]


async def _copy_statement(
    pool: asyncpg.Pool, to: str, source: str, overrides: Mapping[str, str], low: int, high: int
) -> str:
    """Return a statement that inserts copies `low` to `high` of the single row of `source`."""
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
    values = ", ".join(overrides.get(name, f't."{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    return (
        f"insert into {to} ({names}) select {values} from {source} t, "
        f"generate_series({low}::bigint, {high}::bigint) g"
    )
