"""The marks by which tenants were counted: what moves them, and who waits for whom."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from duly.store.attempts import leases, quota_fence
from duly.store.fleet import fleet_snapshot
from duly.store.fleet.servers import Term
from tests.store.rows import add_node, add_task, first_id
from tests.store.tasks.test_locks import is_waiting

REVISED = ["revision"]


async def marks(conn):
    return (await fleet_snapshot.read_snapshot(conn)).fence


@pytest.mark.parametrize(
    ("statement", "moved"),
    [
        ("update duly.plans set max_running = 2 where name = 'unlimited'", REVISED),
        ("update duly.plans set max_resources = '{\"cpu_milli\": 1}' where name = 'free'", REVISED),
        ("update duly.tenants set suspended_at = duly.now()", REVISED),
        ("update duly.tenants set removed_at = duly.now()", REVISED),
        ("update duly.tenants set plan = 'free'", REVISED),
        ("update duly.tenants set name = 'other', plan = plan", []),
        ("update duly.plans set weight = 7", REVISED),
        ("update duly.tenants set weight = 7", REVISED),
        ("update duly.plans set price_class = 'other', max_running = max_running", []),
        ("insert into duly.tenants (name, plan) values ('new', 'free')", []),
    ],
)
async def test_what_changes_a_limit_moves_the_revision_and_nothing_else_does(
    conn, statement, moved
):
    before = await marks(conn)
    await conn.execute(statement)
    after = await marks(conn)
    names = ("revision", "given")
    assert [name for name in names if getattr(after, name) != getattr(before, name)] == moved


async def test_a_change_that_is_undone_moves_nothing(conn):
    before = await marks(conn)
    with pytest.raises(ZeroDivisionError):
        async with conn.transaction():
            await conn.execute("update duly.plans set max_running = 2")
            raise ZeroDivisionError
    assert await marks(conn) == before


async def waiting_task(conn):
    """Store a task and a node that could take it, and let server 1 lead."""
    await add_node(conn, 1)
    task = await first_id(conn)
    await add_task(conn, task)
    await conn.execute("insert into duly.terms values ('scheduling', 1, 1, duly.now(), 'infinity')")
    return task


async def lease(conn, task, marks, *, counts):
    return await leases.lease(
        conn,
        Term(1, 1),
        [(task, 1, 0, 1)],
        revision=marks.revision,
        given=marks.given if counts else None,
        backstop=timedelta(0),
    )


@pytest.mark.parametrize("counts", [True, False])
async def test_a_lease_waits_for_a_change_of_limits_and_is_then_refused(conn, connect, counts):
    task, counted = await waiting_task(conn), await marks(conn)
    administrator, leader = await connect(), await connect()
    change = administrator.transaction()
    await change.start()
    await administrator.execute("set constraints all immediate")
    await administrator.execute("update duly.plans set max_running = 1")
    made = asyncio.create_task(lease(leader, task, counted, counts=counts))
    await is_waiting(conn, leader)
    await change.commit()
    with pytest.raises(asyncpg.PostgresError, match="quotas have changed"):
        await made
    assert await conn.fetchval("select status from duly.live where id = $1", task) == "waiting"


@pytest.mark.parametrize("counts", [True, False])
async def test_a_change_of_limits_waits_for_a_lease_that_is_being_made(conn, connect, counts):
    task, counted = await waiting_task(conn), await marks(conn)
    administrator, leader = await connect(), await connect()
    open_lease = leader.transaction()
    await open_lease.start()
    assert await lease(leader, task, counted, counts=counts)
    change = asyncio.create_task(administrator.execute("update duly.plans set max_running = 1"))
    await is_waiting(conn, administrator)
    await open_lease.commit()
    await change


async def test_of_two_leases_by_the_same_count_one_is_refused(conn, connect):
    task, counted = await waiting_task(conn), await marks(conn)
    other = task + 1
    await add_task(conn, other)
    leader, late = await connect(), await connect()
    open_lease = leader.transaction()
    await open_lease.start()
    assert await lease(leader, task, counted, counts=True)
    second = asyncio.create_task(lease(late, other, counted, counts=True))
    await is_waiting(conn, late)
    await open_lease.commit()
    with pytest.raises(asyncpg.PostgresError, match="quotas have changed"):
        await second
    assert await lease(conn, other, counted, counts=False)


async def test_what_is_given_by_another_way_makes_a_count_void(conn):
    task, counted = await waiting_task(conn), await marks(conn)
    async with conn.transaction():
        await quota_fence.advance(conn, 1)
    with pytest.raises(asyncpg.PostgresError, match="quotas have changed"):
        await lease(conn, task, counted, counts=True)
    assert await lease(conn, task, await marks(conn), counts=True)
    after = await marks(conn)
    assert (after.revision, after.given) == (counted.revision, counted.given + 2)
