"""The benchmark's own checks: a task that was lost or ran twice fails the run."""

import asyncio

import asyncpg
import pytest

from benchmarks import checks
from benchmarks.checks import CheckFailed
from tests.store import rows


@pytest.fixture
def store(dsn):
    """A store with two tasks, each done at its first attempt."""

    async def make():
        conn = await asyncpg.connect(dsn)
        first = await rows.first_id(conn)
        for task in (first, first + 1):
            await rows.add_task(conn, task, live=False)
            await rows.add_attempt(conn, task)
        await conn.execute("update duly.attempts set outcome = 'succeeded'")
        await conn.close()
        return first

    return dsn, asyncio.run(make())


def change(dsn, statement):
    async def run():
        conn = await asyncpg.connect(dsn)
        await conn.execute(statement)
        await conn.close()

    asyncio.run(run())


def test_the_checks_pass_if_every_task_was_done_once(store):
    dsn, _ = store
    checks.all_done(dsn, 2)
    checks.none_lost(dsn, 2)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from duly.ends where task_id = (select max(task_id) from duly.ends)",
        "delete from duly.attempts where task_id = (select max(task_id) from duly.attempts)",
        "insert into duly.attempts select task_id, 2, tenant_id, token, node_id, incarnation_id, "
        "outcome, exit_code, reason, leased_at, started_at, finished_at from duly.attempts limit 1",
        "update duly.attempts set outcome = 'lost' where task_id in "
        "(select max(task_id) from duly.attempts)",
        "update duly.ends set status = 'failed' where task_id in "
        "(select max(task_id) from duly.ends)",
        "delete from duly.tasks where id = (select max(id) from duly.tasks)",
    ],
    ids=["no end", "no attempt", "ran twice", "lost", "failed", "no task"],
)
def test_every_violation_fails_both_checks(store, statement):
    dsn, _ = store
    change(dsn, statement)
    for check in (checks.all_done, checks.none_lost):
        with pytest.raises(CheckFailed):
            check(dsn, 2)


def test_a_task_that_waits_is_neither_done_nor_lost(store):
    dsn, first = store

    async def add():
        conn = await asyncpg.connect(dsn)
        await rows.add_task(conn, first + 2)
        await conn.close()

    asyncio.run(add())
    checks.none_lost(dsn, 3)
    with pytest.raises(CheckFailed):
        checks.all_done(dsn, 3)
