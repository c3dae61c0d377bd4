"""Races between the removal of a tenant and submissions for it: nothing is left behind."""

import asyncio

import asyncpg
import pytest

from duly.errors import Conflict, NotFound
from duly.server.admission.new_task import new_task
from duly.store.accounts import tenants
from duly.store.database import _initialize
from duly.store.tasks import tasks
from tests.server.lab import answers


@pytest.fixture
async def other(shared_dsn, lab):
    """Another connection, of whoever comes at the same time."""
    conn = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    await _initialize(conn)
    yield conn
    await conn.close()


@pytest.fixture(params=["unlimited", "standard"])
async def client(lab, request):
    """A client of a tenant with or without a rate, known from before."""
    await lab.conn.execute("insert into tenants (name, plan) values ('brief', $1)", request.param)
    client = await lab.credential("brief")
    if client.plan.burst is not None:
        await lab.conn.execute("insert into buckets values ($1, 100, now())", client.tenant_id)
    return client


def new(lab, client, shape=1):
    components = lab.components
    task_id = components.submitter._sequencer.mint()
    return new_task(task_id, client, lab.spec(), shape, components.run_times)


async def storing(lab, client):
    """Return what is about to be stored for a client, by a statement on its own."""
    (shape,) = await lab.components.submitter._shapes.get_or_create([lab.spec()])
    return [new(lab, client, shape)]


async def test_nothing_is_stored_for_a_tenant_that_was_removed_a_moment_ago(lab, client):
    ended = await lab.submit(by=client)
    await lab.components.canceller.cancel(client, [ended])
    await lab.components.tenants.remove(lab.client, client.tenant_id)
    with pytest.raises(NotFound, match="There is no such tenant"):
        await lab.submit(by=client)
    for asked in (
        lab.components.submitter.submit_batch(client, [lab.spec()] * 2),
        lab.components.submitter.submit_batch(client, [lab.spec()], key="k"),
        lab.components.replayer.replay(client, ended),
    ):
        with pytest.raises(NotFound, match="There is no such tenant"):
            await asked
    assert await lab.count("live") == 0
    assert await lab.count("tasks") == 1


async def test_a_removal_waits_for_what_is_being_stored_and_is_then_refused(lab, client, other):
    given = await storing(lab, client)
    await other.execute("begin")
    done = await tasks.insert(other, given, server=1)
    assert len(done.stored) == 1
    async with asyncio.TaskGroup() as group:
        removing = group.create_task(
            attempted(lab.components.tenants.remove(lab.client, client.tenant_id))
        )
        await anybody_waits(lab)
        await other.execute("commit")
    assert isinstance(removing.result(), Conflict)
    assert removing.result().details["live"] == 1
    assert await lab.submit(by=client)


async def test_a_suspension_does_not_wait_for_what_is_being_stored(lab, client, other):
    given = await storing(lab, client)
    await other.execute("begin")
    await tasks.insert(other, given, server=1)
    async with asyncio.timeout(10):
        await lab.components.tenants.suspend(lab.client, client.tenant_id)
        await lab.components.tenants.resume(lab.client, client.tenant_id)
        await lab.components.tenants.update(lab.client, client.tenant_id, name=None, plan="free")
    await other.execute("commit")


async def test_nobody_waits_in_a_commit_for_a_tenant_that_is_being_removed(lab, client, other):
    await lab.components.submitter._shapes.get_or_create([lab.spec()])
    await other.execute("begin")
    assert await tenants.lock_for_removal(other, client.tenant_id)
    submitter = lab.components.submitter
    late = asyncio.create_task(submitter.submit(client, lab.spec()))
    async with asyncio.timeout(10):
        assert await lab.submit()
    assert not late.done()
    await tenants.remove(other, client.tenant_id)
    await other.execute("commit")
    (answer,) = await answers(submitter, [late])
    assert isinstance(answer, NotFound)
    assert await lab.count("live") == 1


async def test_a_batch_waits_for_a_removal_that_may_yet_be_undone(lab, client, other):
    await other.execute("begin")
    await tenants.lock_for_removal(other, client.tenant_id)
    async with asyncio.TaskGroup() as group:
        storing = group.create_task(lab.components.submitter.submit_batch(client, [lab.spec()] * 3))
        await anybody_waits(lab)
        await other.execute("rollback")
    assert len(storing.result().ids) == await lab.count("live") == 3


async def attempted(doing):
    """Return the error that something ends with."""
    try:
        return await doing
    except Conflict as error:
        return error


async def anybody_waits(lab):
    """Return once somebody waits for a lock in this database."""
    async with asyncio.timeout(10):
        while not await lab.conn.fetchval(
            "select exists (select 1 from pg_stat_activity where wait_event_type = 'Lock' "
            "and datname = current_database())"
        ):
            await asyncio.sleep(0.005)
