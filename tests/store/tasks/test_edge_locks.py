"""Whoever waits for a task and whoever ends it meet at its row, and each knows of the other.

Whichever of the two commits first: the end is told, once.
"""

import asyncio

import asyncpg
import pytest

from duly.model.graph import Condition
from duly.model.task import Reason, Status
from duly.store.attempts import leases
from duly.store.attempts.leases import SucceededAttempt
from duly.store.fleet.servers import Term
from duly.store.tasks import edges, tasks
from duly.store.tasks.edges import NewEdge
from tests.store.rows import add_live, add_node, add_task, first_id
from tests.store.tasks.test_locks import is_waiting

TERM = Term(1, 1)


@pytest.fixture
async def upstream(conn):
    """A task that runs, and a leader."""
    await conn.execute("insert into duly.terms values ('scheduling', 1, 1, duly.now(), 'infinity')")
    await add_node(conn, 1)
    task = await first_id(conn)
    await add_live(conn, task, attempt=1, node_id=1, incarnation_id=1, token=1)
    return task


async def add_dependant(conn: asyncpg.Connection, upstream: int) -> int:
    """Store a task that waits for another, in a transaction that is left open."""
    task = upstream + 1
    await add_task(conn, task, live=False)
    await conn.execute("delete from duly.ends where task_id = $1", task)
    await conn.execute(
        "insert into duly.live (id, tenant_id, shape_id, status, priority, ready_at, start_by, "
        "delay_tolerance, execution_cap, max_attempts, on_lost, blocked_by) "
        "values ($1, 1, 1, 'blocked', 0, duly.now(), duly.now(), '5 m', '1 h', 3, 'retry', 1)",
        task,
    )
    return task


async def attach(conn: asyncpg.Connection, task: int, upstream: int) -> None:
    edge = NewEdge(task, upstream, Condition.SUCCESS)
    assert await edges.attach(conn, 1, [edge]) == []


async def finish(conn: asyncpg.Connection, task: int) -> dict[int, bool]:
    success = SucceededAttempt(task, 1, 1, 0, 1.0, 0.0, None, 0, b"", None, None)
    return await leases.finish_attempts(conn, 1, [success])


async def state_of(conn: asyncpg.Connection, task: int) -> tuple[str, int]:
    row = await conn.fetchrow("select status, blocked_by from duly.live where id = $1", task)
    assert row is not None
    return row["status"], row["blocked_by"]


async def test_an_end_waits_for_whoever_submits_a_dependant(conn, connect, upstream):
    submitter, finisher = await connect(), await connect()
    async with submitter.transaction():
        task = await add_dependant(submitter, upstream)
        await attach(submitter, task, upstream)
        async with asyncio.TaskGroup() as group:
            end = group.create_task(finish(finisher, upstream))
            await is_waiting(conn, finisher)
            await submitter.execute("commit")
        assert end.result() == {upstream: True}
        await submitter.execute("begin")
    assert await state_of(conn, task) == ("blocked", 1)
    settled = await edges.resolve(conn, TERM, limit=100, share=100)
    assert [pair for pair, _ in settled.waiting] == [(1, 1)]
    assert await state_of(conn, task) == ("waiting", 0)
    assert await edges.resolve(conn, TERM, limit=100, share=100) == edges.ResolvedEdges(
        [], 0, [], None
    )


async def test_whoever_submits_a_dependant_waits_for_an_end_and_sees_it(conn, connect, upstream):
    submitter, finisher = await connect(), await connect()
    async with submitter.transaction():
        task = await add_dependant(submitter, upstream)
        async with finisher.transaction():
            assert await finish(finisher, upstream) == {upstream: False}
            async with asyncio.TaskGroup() as group:
                group.create_task(attach(submitter, task, upstream))
                await is_waiting(conn, submitter)
                await finisher.execute("commit")
            await finisher.execute("begin")
    assert await state_of(conn, task) == ("waiting", 0)
    assert await conn.fetchval("select count(*) from duly.ended_upstreams") == 0


async def test_an_end_that_is_not_told_yet_is_not_told_to_who_has_seen_it(conn, upstream):
    """Else its edges would be counted down twice, and it would start too early."""
    await conn.execute("update duly.live set has_dependants = true")
    await finish(conn, upstream)
    task = await add_dependant(conn, upstream)
    other = upstream + 2
    await add_live(conn, other)
    await conn.execute("update duly.live set blocked_by = 2 where id = $1", task)
    pairs = [NewEdge(task, one, Condition.SUCCESS) for one in (upstream, other)]
    assert await edges.attach(conn, 1, pairs) == []
    assert await state_of(conn, task) == ("blocked", 1)
    await edges.resolve(conn, TERM, limit=100, share=100)
    assert await state_of(conn, task) == ("blocked", 1)


async def test_a_cancel_waits_for_whoever_submits_a_dependant(conn, connect, upstream):
    await conn.execute(
        "update duly.live set status = 'waiting', node_id = null, incarnation_id = null, "
        "token = null, leased_at = null"
    )
    submitter, other = await connect(), await connect()
    async with submitter.transaction():
        task = await add_dependant(submitter, upstream)
        await attach(submitter, task, upstream)
        async with asyncio.TaskGroup() as group:
            group.create_task(tasks.request_cancel(other, 1, [upstream]))
            await is_waiting(conn, other)
            await submitter.execute("commit")
        await submitter.execute("begin")
    settled = await edges.resolve(conn, TERM, limit=100, share=100)
    assert settled.cancelled == [task]


async def test_two_who_wait_for_the_same_tasks_do_not_wait_for_each_other(conn, connect, upstream):
    """Once the mark is set: they come in any number, and each may take a while."""
    await conn.execute("update duly.live set has_dependants = true")
    one, other = await connect(), await connect()
    async with one.transaction(), other.transaction():
        await attach(one, upstream + 10, upstream)
        async with asyncio.timeout(5):
            await attach(other, upstream + 11, upstream)


async def test_every_way_to_end_leaves_a_note(conn, upstream):
    await conn.execute("update duly.live set has_dependants = true")
    unstarted = upstream + 1
    await add_live(conn, unstarted, has_dependants=True)
    await finish(conn, upstream)
    reason = Reason("hopeless", "No node could ever fit it.")
    await leases.end_unstarted(conn, {unstarted: reason}, Status.FAILED)
    rows = await conn.fetch("select task_id, status from duly.ended_upstreams order by 1")
    assert [tuple(row) for row in rows] == [(upstream, "done"), (unstarted, "failed")]


async def test_a_leader_of_an_old_term_tells_nobody(conn, upstream):
    with pytest.raises(asyncpg.PostgresError, match="is over"):
        await edges.resolve(conn, Term(0, 1), limit=100, share=100)


async def test_tenants_have_turns_however_much_one_of_them_has_to_tell(conn, upstream):
    loud = [upstream + 10 + number for number in range(40)]
    quiet = upstream + 100
    for tenant, task in [*((1, task) for task in loud), (2, quiet)]:
        await conn.execute(
            "insert into duly.ended_upstreams values ($1, $2, 'done', 0)", task, tenant
        )
    settled = await edges.resolve(conn, TERM, limit=2, share=4, after=1)
    assert (settled.last, await untold(conn, 2)) == (1, [])
    assert await untold(conn, 1) == loud[4:]
    while settled.last is not None:
        settled = await edges.resolve(conn, TERM, limit=2, share=4, after=settled.last)
    assert await untold(conn, 1) == []


async def untold(conn: asyncpg.Connection, tenant: int) -> list[int]:
    rows = await conn.fetch(
        "select task_id from duly.ended_upstreams where tenant_id = $1 order by 1", tenant
    )
    return [row["task_id"] for row in rows]


async def test_of_one_that_many_wait_for_no_more_is_told_than_its_share(conn, upstream):
    waiting = [await add_dependant(conn, upstream + number) for number in range(10)]
    await edges.attach(conn, 1, [NewEdge(one, upstream, Condition.SUCCESS) for one in waiting])
    assert await finish(conn, upstream) == {upstream: True}
    settled = await edges.resolve(conn, TERM, limit=4, share=4)
    assert (len(settled.waiting), settled.last) == (4, 1)
    settled = await edges.resolve(conn, TERM, limit=100, share=4)
    assert (len(settled.waiting), settled.last) == (6, None)
    assert [await state_of(conn, one) for one in waiting] == [("waiting", 0)] * 10
