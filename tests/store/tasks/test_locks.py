"""What a statement decides holds under the lock that it waited for."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from duly.model.resources import Resources
from duly.store.attempts import leases
from duly.store.attempts.leases import SucceededAttempt
from duly.store.fleet import nodes
from duly.store.fleet.servers import Term
from duly.store.tasks import tasks
from tests.store.rows import add_live, add_node, add_task, first_id


async def is_waiting(conn: asyncpg.Connection, other: asyncpg.Connection) -> None:
    """Return once `other` waits for a lock."""
    pid = other.get_server_pid()
    async with asyncio.timeout(10):
        while not await conn.fetchval(
            "select exists (select 1 from pg_locks where pid = $1 and not granted)", pid
        ):
            await asyncio.sleep(0.005)


async def lease_again(conn, task, incarnation):
    await conn.execute(
        "update duly.live set status = 'waiting', incarnation_id = null, node_id = null, "
        "token = null, leased_at = null where id = $1",
        task,
    )
    await conn.execute(
        "update duly.live set status = 'running', attempt = attempt + 1, incarnation_id = $2, "
        "node_id = $2, token = 99, leased_at = duly.now() where id = $1",
        task,
        incarnation,
    )


async def test_an_orphan_that_moved_on_while_it_was_waited_for_is_left_alone(conn, connect):
    await add_node(conn, 1, ended=True)
    await add_node(conn, 2)
    for task in (1, 2):
        await add_live(conn, task, attempt=1, node_id=1, incarnation_id=1, token=task)
    holder, sweeper = await connect(), await connect()
    async with holder.transaction(), sweeper.transaction():
        await holder.execute("select 1 from duly.live where id = 1 for update")
        async with asyncio.TaskGroup() as group:
            sweep = group.create_task(leases.lock_orphans(sweeper, limit=10))
            await is_waiting(conn, sweeper)
            await lease_again(conn, 2, incarnation=2)
            await holder.execute("rollback")
        assert [held.id for held in sweep.result()] == [1]
        await holder.execute("begin")


async def lock_reports(conn, tasks):
    held, _ = await leases.lock_attempts(conn, 1, [(task, 1, task) for task in tasks])
    return sorted(held)


async def lock_orphans(conn, tasks):
    return sorted(held.id for held in await leases.lock_orphans(conn, limit=len(tasks)))


@pytest.mark.parametrize("changed", [(1,), (2,), (1, 3), (1, 2, 3)])
@pytest.mark.parametrize("lock", [lock_reports, lock_orphans])
async def test_what_was_changed_while_it_was_waited_for_is_locked_with_the_rest(
    conn, connect, lock, changed
):
    """PostgreSQL 18.4 may crash on a statement that waits for one row and goes on to the next."""
    await add_node(conn, 1, ended=lock is lock_orphans)
    for task in (1, 2, 3):
        await add_live(conn, task, attempt=1, node_id=1, incarnation_id=1, token=task)
    holder, waiter = await connect(), await connect()
    async with asyncio.TaskGroup() as group, holder.transaction():
        await holder.execute(
            "update duly.live set is_paused = true where id = any($1::bigint[])", changed
        )
        locked = group.create_task(lock(waiter, (1, 2, 3)))
        await is_waiting(conn, waiter)
    assert locked.result() == [1, 2, 3]


async def test_a_report_of_an_attempt_that_moved_on_while_it_was_waited_for_is_stale(conn, connect):
    await add_node(conn, 1)
    await add_live(conn, 1, attempt=1, node_id=1, incarnation_id=1, token=1)
    holder, reporter = await connect(), await connect()
    async with holder.transaction(), reporter.transaction():
        await lease_again(holder, 1, incarnation=1)
        async with asyncio.TaskGroup() as group:
            lock = group.create_task(leases.lock_attempts(reporter, 1, [(1, 1, 1)]))
            await is_waiting(conn, reporter)
            await holder.execute("commit")
        assert lock.result() == ({}, None)
        await holder.execute("begin")


@pytest.mark.parametrize("change", ["cancel", "lease"])
async def test_a_success_of_what_was_changed_while_it_was_waited_for_finishes_nothing(
    conn, connect, change
):
    await add_node(conn, 1)
    await add_live(conn, 1, attempt=1, node_id=1, incarnation_id=1, token=1)
    holder, reporter = await connect(), await connect()
    async with holder.transaction():
        if change == "cancel":
            await tasks.request_cancel(holder, 1, [1])
        else:
            await lease_again(holder, 1, incarnation=1)
        success = SucceededAttempt(1, 1, 1, 0, 1.0, 0.0, None, 0, b"", None, None)
        async with asyncio.TaskGroup() as group:
            finish = group.create_task(leases.finish_attempts(reporter, 1, [success]))
            await is_waiting(conn, reporter)
            await holder.execute("commit")
        assert finish.result() == {}
        await holder.execute("begin")
    assert await conn.fetchval("select status from duly.live") == "running"


async def test_a_lease_tells_of_a_change_that_it_waited_for(conn, connect):
    await add_node(conn, 1)
    task = await first_id(conn)
    await add_task(conn, task)
    await conn.execute("insert into duly.terms values ('scheduling', 1, 1, duly.now(), 'infinity')")
    changer, leader = await connect(), await connect()
    async with changer.transaction(), leader.transaction():
        await changer.execute("select 1 from duly.live where id = $1 for update", task)
        async with asyncio.TaskGroup() as group:
            lease = group.create_task(
                leases.lease(
                    leader,
                    Term(1, 1),
                    [(task, 1, 0, 1)],
                    revision=1,
                    given=None,
                    backstop=timedelta(0),
                    with_details=[1],
                )
            )
            await is_waiting(conn, leader)
            await changer.execute("update duly.tasks set payload = $1", {"command": ["new"]})
            await changer.execute("commit")
        (made,) = lease.result()
        assert made.start(Resources(), 1).payload.command == ["new"]
        await changer.execute("begin")


async def test_draining_waits_for_a_join_and_then_holds_for_the_new_incarnation(conn, connect):
    await add_node(conn, 100)
    joiner, drainer = await connect(), await connect()
    async with joiner.transaction():
        await joiner.fetchval("select duly.join_node(100, '{}', '{}', 'process', '1', '15 s')")
        async with asyncio.TaskGroup() as group:
            drain = group.create_task(nodes.drain(drainer, 100, draining=True))
            await is_waiting(conn, drainer)
            await joiner.execute("commit")
        assert drain.result()
        await joiner.execute("begin")
    assert await conn.fetchval("select draining from duly.nodes where id = 100")
