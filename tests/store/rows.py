"""Rows of the store, with defaults for what a test does not care about."""

from typing import Any

from duly.store.database import Connection

DAY = "select duly.first_id_of(duly.day_of(duly.now()) + $1)"


async def first_id(conn: Connection, days: int = 0) -> int:
    """Return the first id of a day, counted from today."""
    found: int = await conn.fetchval(DAY, days)
    return found


async def add_task(
    conn: Connection, task: int, *, key: str | None = None, live: bool = True
) -> None:
    """Store a task, as live or as done."""
    await conn.execute(
        "insert into duly.tasks values ($1, 1, null, 1, null, 'basic', '{}', '{}', '5 m', '1 h', "
        "3, 'retry', 0, null, $2, null, 0, duly.now())",
        task,
        key,
    )
    if key is not None:
        await conn.execute(
            "insert into duly.submissions values (1, $1, 'x', $2, null, duly.now())", key, task
        )
    if live:
        await add_live(conn, task)
    else:
        await end_task(conn, task)


async def add_live(conn: Connection, task: int, **columns: Any) -> None:
    """Make the live row of a task."""
    given: dict[str, Any] = {
        "id": task,
        "tenant_id": 1,
        "shape_id": 1,
        "priority": 0,
        "max_attempts": 3,
        "on_lost": "retry",
        **columns,
    }
    names, places = ", ".join(given), ", ".join(f"${n}" for n in range(1, len(given) + 1))
    await conn.execute(
        f"insert into duly.live ({names}, status, ready_at, start_by, delay_tolerance, "
        f"execution_cap, leased_at) values ({places}, "
        f"'{'running' if 'token' in given else 'waiting'}', duly.now(), duly.now(), '5 m', '1 h', "
        f"{'duly.now()' if 'token' in given else 'null'})",
        *given.values(),
    )


async def end_task(conn: Connection, task: int) -> None:
    """Let a task be done now."""
    await conn.execute("delete from duly.live where id = $1", task)
    await conn.execute(
        "insert into duly.ends (task_id, tenant_id, status, attempt, failures, losses, ready_at, "
        "start_by, finished_at) "
        "values ($1, 1, 'done', 1, 0, 0, duly.now(), duly.now(), duly.now())",
        task,
    )


async def add_attempt(conn: Connection, task: int, attempt: int = 1) -> None:
    """Record an attempt that was lost."""
    await conn.execute(
        "insert into duly.attempts (task_id, attempt, tenant_id, token, node_id, incarnation_id, "
        "outcome, leased_at, finished_at) "
        "values ($1, $2::int, 1, $2::int, 1, 1, 'lost', duly.now(), duly.now())",
        task,
        attempt,
    )


async def add_node(conn: Connection, node: int, *, ended: bool = False) -> None:
    """Make a node and an incarnation of the same id."""
    await conn.execute(
        "insert into duly.nodes (id, name, key_hash, created_at) "
        "values ($1::bigint, 'node ' || $1::bigint, $1::bigint::text::bytea, duly.now())",
        node,
    )
    await conn.execute(
        "insert into duly.incarnations (id, node_id, capacity, isolation, version, started_at, "
        "renewed_at, expires_at, ended_at, end_reason) "
        "values ($1, $1, '{}', 'process', '1', duly.now(), duly.now(), "
        "duly.now() + interval '1 hour', case when $2 then duly.now() end, "
        "case when $2 then 'expired' end)",
        node,
        ended,
    )
