"""A mark and whatever else wants the same task: the first to lock its row counts."""

import asyncio
from datetime import timedelta

import pytest

from duly.model.task import Reason, Status
from duly.store.attempts import leases, stopping_attempts
from duly.store.attempts.leases import SucceededAttempt
from duly.store.fleet.servers import Term
from duly.store.tasks import marks, tasks
from duly.store.tasks.marks import Marked
from tests.store.rows import add_live, add_node, add_task, first_id
from tests.store.tasks.test_locks import is_waiting

SUCCESS = (0, 1.0, 0.0, None, 0, b"", None, None)


def mark(conn, task):
    reason = Reason("marked", "Marked as failed.")
    return marks.mark(conn, 1, task, status=Status.FAILED, reason=reason, result=None)


def finish(conn, task):
    return leases.finish_attempts(conn, 1, [SucceededAttempt(task, 1, 1, *SUCCESS)])


def lock_report(conn, task):
    return leases.lock_attempts(conn, 1, [(task, 1, 1)])


def cancel(conn, task):
    return tasks.request_cancel(conn, 1, [task])


def lease(conn, task):
    return leases.lease(
        conn,
        Term(1, 1),
        [(task, 1, 0, 1)],
        revision=1,
        given=None,
        backstop=timedelta(0),
        with_details=[],
    )


@pytest.fixture
async def waits(conn):
    """A task that waits, and a node for it."""
    await add_node(conn, 1)
    await conn.execute("insert into duly.terms values ('scheduling', 1, 1, duly.now(), 'infinity')")
    task = await first_id(conn)
    await add_task(conn, task)
    return task


@pytest.fixture
async def runs(conn):
    """A task that runs."""
    await add_node(conn, 1)
    task = await first_id(conn)
    await add_task(conn, task, live=False)
    await conn.execute("delete from duly.ends")
    await add_live(conn, task, attempt=1, node_id=1, incarnation_id=1, token=1)
    return task


async def one_after_the_other(conn, connect, task, first, second):
    """Let `second` wait for the lock of `first`; return what both have found."""
    holder, waiter = await connect(), await connect()
    held = holder.transaction()
    await held.start()
    before = await first(holder, task)
    async with asyncio.TaskGroup() as group:
        later = group.create_task(second(waiter, task))
        await is_waiting(conn, waiter)
        await held.commit()
    return before, later.result()


async def ends(conn):
    rows = await conn.fetch("select status, attempt from duly.ends")
    return [tuple(row) for row in rows]


async def outcomes(conn):
    return [row["outcome"] for row in await conn.fetch("select outcome from duly.attempts")]


@pytest.mark.parametrize(
    ("other", "found"), [(finish, {}), (lock_report, ({}, None)), (cancel, {})]
)
async def test_what_waited_for_a_mark_of_a_running_task_finds_nothing(
    conn, connect, runs, other, found
):
    got = await one_after_the_other(conn, connect, runs, mark, other)
    assert got == (Marked(1), found)
    assert (await ends(conn), await outcomes(conn)) == ([("failed", 1)], ["cancelled"])


async def test_a_report_that_waited_for_a_mark_finds_the_attempt_stopping(conn, connect, runs):
    refs = [(runs, 1, 1)]

    async def report(reporting, task):
        async with reporting.transaction():
            held, _ = await leases.lock_attempts(reporting, 1, refs)
            return held, await stopping_attempts.remove(reporting, 1, refs)

    _, found = await one_after_the_other(conn, connect, runs, mark, report)
    assert found == ({}, {1})
    assert await conn.fetchval("select count(*) from duly.stopping_attempts") == 0


@pytest.mark.parametrize("ended", [False, True])
async def test_a_stopping_attempt_is_an_orphan_once_its_incarnation_has_ended(conn, runs, ended):
    await mark(conn, runs)
    if ended:
        await conn.execute("update duly.incarnations set ended_at = duly.now()")
    vitals = await leases.read_vitals(conn, lately=timedelta(0), whole=False)
    assert vitals.has_orphans == ended
    await stopping_attempts.remove_orphans(conn)
    assert await conn.fetchval("select count(*) from duly.stopping_attempts") == (not ended)


@pytest.mark.parametrize(("other", "found"), [(lease, []), (cancel, {})])
async def test_what_waited_for_a_mark_of_a_waiting_task_finds_nothing(
    conn, connect, waits, other, found
):
    got = await one_after_the_other(conn, connect, waits, mark, other)
    assert got == (Marked(None), found)
    assert (await ends(conn), await outcomes(conn)) == ([("failed", 0)], [])


async def test_a_mark_that_waited_for_a_report_finds_nothing(conn, connect, runs):
    _, marked = await one_after_the_other(conn, connect, runs, finish, mark)
    assert marked is None
    assert (await ends(conn), await outcomes(conn)) == ([("done", 1)], ["succeeded"])


async def test_a_mark_that_waited_for_a_lease_stops_the_attempt(conn, connect, waits):
    (leased,), marked = await one_after_the_other(conn, connect, waits, lease, mark)
    assert marked == Marked(1)
    row = await conn.fetchrow("select token, outcome from duly.attempts")
    assert tuple(row) == (leased.token, "cancelled")
    assert await ends(conn) == [("failed", 1)]


async def test_a_mark_that_waited_for_a_cancel_settles_only_what_still_runs(conn, connect, runs):
    _, marked = await one_after_the_other(conn, connect, runs, cancel, mark)
    assert (marked, await ends(conn)) == (Marked(1), [("failed", 1)])


async def test_a_mark_that_waited_for_a_cancel_of_a_waiting_task_finds_nothing(
    conn, connect, waits
):
    _, marked = await one_after_the_other(conn, connect, waits, cancel, mark)
    assert (marked, await ends(conn)) == (None, [("cancelled", 0)])


async def test_a_mark_of_another_tenant_finds_nothing(conn, runs):
    reason = Reason("marked", "Marked as done.")
    marked = await marks.mark(conn, 2, runs, status=Status.DONE, reason=reason, result=None)
    assert (marked, await ends(conn)) == (None, [])
