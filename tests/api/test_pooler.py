"""A server works behind PgBouncer with two sessions in transaction pooling mode."""

import asyncio

import pytest

from duly import telemetry
from duly.config import DatabaseSettings, Settings
from duly.errors import ConfigError
from duly.model.tenant import Scope
from duly.store.database import Database
from tests.pgbouncer import SESSIONS, pooler


@pytest.fixture
def address(dsn):
    with pooler(dsn) as address:
        yield address


@pytest.fixture
def settings(address):
    return Settings(database=DatabaseSettings(pooler=address))


@pytest.fixture
async def database(dsn, settings):
    """A pool whose connections end at the pooler."""
    database = await Database.connect(dsn, settings.database)
    yield database
    await database.close()


async def sessions(api):
    """Return which session serves us, and keep it for so long that others need another."""
    async with api.components.database.connection() as conn:
        return await conn.fetchval("select pg_backend_pid() from pg_sleep(0.05)")


async def test_tenants_that_share_two_sessions_see_their_own_tasks_and_no_others(api, key_for):
    callers = [
        api.with_key(await key_for(tenant, "kim", Scope.SUBMIT, Scope.READ))
        for tenant in ("acme", "globex")
    ]

    async def work(caller, number):
        """Submit and look, and return what was made and what was seen."""
        made = (await caller.submit(name=f"n{number}"))["id"]
        seen = await caller.get("/v1/tasks?limit=200")
        assert (await caller.get(f"/v1/tasks/{made}"))["id"] == made
        return made, {one["id"] for one in seen["items"]}

    async with asyncio.TaskGroup() as group:
        working = [
            [group.create_task(work(caller, number)) for number in range(10)] for caller in callers
        ]
        pids = [group.create_task(sessions(api)) for _ in range(10)]
    ours, theirs = ([task.result() for task in tasks] for tasks in working)
    for mine, others in ((ours, theirs), (theirs, ours)):
        foreign = {made for made, _ in others}
        assert not foreign & {seen for _, all_seen in mine for seen in all_seen}
    for caller, others in zip(callers, (theirs, ours), strict=True):
        for made, _ in others[:3]:
            assert (await caller.refused("GET", f"/v1/tasks/{made}"))[0] == 404
    assert len({pid.result() for pid in pids}) == SESSIONS


async def test_role_and_tenant_end_with_the_transaction(api):
    database = api.components.database

    async def look(tenant):
        async with database.reading_for(tenant) as conn:
            found = await conn.fetchrow(
                "select current_user::text, current_setting('duly.tenant') as tenant,"
                " pg_sleep(0.001)"
            )
        return found["current_user"], int(found["tenant"])

    async def look_unconfined():
        async with database.connection() as conn:
            return await conn.fetchval("select current_user::text"), await conn.fetchval(
                "select current_setting('duly.tenant', true)"
            )

    async with asyncio.TaskGroup() as group:
        confined = [group.create_task(look(number)) for number in range(1, 60)]
        others = [group.create_task(look_unconfined()) for _ in range(60)]
    role = database._role
    assert [task.result() for task in confined] == [(role, number) for number in range(1, 60)]
    assert {task.result()[0] for task in others} == {"duly"}
    assert {task.result()[1] for task in others} <= {None, ""}


def failed_ticks():
    [family] = telemetry.TICKS_FAILED.collect()
    return {tuple(one.labels.values()): one.value for one in family.samples if one.value}


async def test_a_task_lives_from_first_to_last_and_every_duty_is_done(api, agent):
    failed = failed_ticks()
    schedule = {"task": {"command": ["true"]}, "every": "1s", "name": "s"}
    assert (await api.call("POST", "/v1/schedules", json=schedule)).status_code == 201
    task = await api.submit(idempotency_key="k")
    held = await agent.poll()
    while len(held.start) < 2:
        held.start.extend((await agent.poll([start.ref for start in held.start])).start)
    for start in held.start:
        await agent.finish(start.ref)
    assert (await api.get(f"/v1/tasks/{task['id']}?wait=10"))["status"] == "done"
    again = {"command": ["true"], "idempotency_key": "k"}
    assert (await api.call("POST", "/v1/tasks", json=again)).status_code == 200
    await api.components.retention.tick()
    await api.components.usage_recorder.tick()
    [used] = (await api.get("/v1/usage"))["items"]
    assert used["attempts"] >= 2
    assert failed_ticks() == failed


async def test_a_role_that_is_not_prepared_is_told_how(dsn):
    with (
        pooler(dsn, prepared=False) as address,
        pytest.raises(ConfigError, match=r"alter role duly in database .* search_path"),
    ):
        await Database.connect(dsn, DatabaseSettings(pooler=address))
