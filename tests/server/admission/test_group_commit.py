import asyncio

import asyncpg
import msgspec
import pytest

from duly import telemetry
from duly.errors import Conflict, Invalid, Unavailable
from tests.server.lab import answers


def poisoned(spec):
    """Return a spec that PostgreSQL refuses; requests with such a name are refused earlier."""
    return msgspec.structs.replace(spec, name="a\0b")


def commits():
    """Return the number of groups committed in this process."""
    return next(
        sample.value
        for sample in next(iter(telemetry.COMMIT_SECONDS.collect())).samples
        if sample.name.endswith("_count")
    )


async def ids_in(lab, table="tasks", column="id"):
    return {row[0] for row in await lab.conn.fetch(f"select {column} from {table}")}


async def blocked_backend(lab):
    """Return the backend of the submitter once it waits for a lock or for a standby."""
    while True:
        pid = await lab.conn.fetchval(
            """select pid from pg_stat_activity
                where datname = current_database() and application_name = 'duly'
                  and state = 'active'
                  and (wait_event_type = 'Lock' or wait_event = 'SyncRep')"""
        )
        if pid is not None:
            return pid
        await asyncio.sleep(0)


async def test_concurrent_submissions_share_one_commit(lab):
    before = commits()
    got = await lab.submit_all([lab.spec(name=f"task {number}") for number in range(100)])
    assert commits() == before + 1
    assert all(answer.created for answer in got)
    assert await ids_in(lab) == await ids_in(lab, "live") == {answer.id for answer in got}


async def test_each_submission_returns_its_own_task(lab):
    got = await lab.submit_all([lab.spec(name=f"task {number}") for number in range(20)])
    names = dict(await lab.conn.fetch("select id, name from tasks"))
    assert [names[answer.id] for answer in got] == [f"task {number}" for number in range(20)]


async def test_a_response_has_the_start_by_of_the_task(lab):
    (answer,) = await lab.submit_all([lab.spec(delay_tolerance="60s")])
    row = await lab.live(answer.id)
    assert answer.stored.status == row["status"] == "waiting"
    assert answer.stored.ready_at == row["ready_at"] == lab.clock.now
    assert (answer.stored.start_by - lab.clock.now).total_seconds() == 60
    assert answer.stored.start_by == row["start_by"]


@pytest.mark.parametrize("place", [0, 50, 98, 99])
async def test_one_bad_task_among_many_fails_alone(lab, place):
    specs = [lab.spec() for _ in range(99)]
    specs.insert(place, poisoned(lab.spec()))
    got = await lab.submit_all(specs)
    assert isinstance(got[place], Invalid)
    rest = got[:place] + got[place + 1 :]
    assert {answer.id for answer in rest} == await ids_in(lab)
    assert len(await ids_in(lab)) == 99


async def test_every_task_of_a_bad_group_is_refused(lab):
    got = await lab.submit_all([poisoned(lab.spec()) for _ in range(5)])
    assert [type(answer) for answer in got] == [Invalid] * 5
    assert await lab.count("tasks") == await lab.count("live") == 0


async def test_a_bad_task_does_not_use_its_idempotency_key(lab):
    spec = lab.spec(idempotency_key="k")
    assert isinstance((await lab.submit_all([poisoned(spec)]))[0], Invalid)
    assert (await lab.submit_all([spec]))[0].created


async def test_an_id_that_is_taken_is_minted_again(lab):
    sequencer = lab.components.submitter._sequencer
    before = [await lab.submit() for _ in range(3)]
    # As if another server had minted with our number while this one was suspended.
    sequencer._last -= len(before)
    got = await lab.submit_all([lab.spec() for _ in range(10)])
    ids = {answer.id for answer in got}
    assert len(ids) == 10
    assert ids.isdisjoint(before)
    assert await ids_in(lab) == ids | set(before)


async def test_submissions_of_tenants_are_independent(lab):
    mine, theirs = await lab.submit(), await lab.submit(by=lab.stranger)
    owners = dict(await lab.conn.fetch("select id, tenant_id from tasks"))
    assert owners == {mine: lab.client.tenant_id, theirs: lab.stranger.tenant_id}


async def test_the_task_of_a_client_that_went_away_stays_stored(lab):
    submitter = lab.components.submitter
    spec = lab.spec()
    await lab.submit()
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(submitter.submit(lab.client, spec))
        await asyncio.sleep(0)
        gone.cancel()
    await submitter.tick()
    assert await lab.count("tasks") == 2


async def test_a_commit_cut_off_before_it_happened_has_an_unknown_result(lab, shared_dsn):
    await lab.submit()
    blocker = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    try:
        async with blocker.transaction():
            await blocker.execute("lock table live in share mode")
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(lab.submit_all([lab.spec() for _ in range(3)]))
                pid = await blocked_backend(lab)
                await lab.conn.execute("select pg_terminate_backend($1)", pid)
    finally:
        await blocker.close()
    for answer in asked.result():
        assert isinstance(answer, Unavailable)
        assert "same idempotency key" in answer.message
    assert await lab.count("tasks") == 1


async def test_a_commit_whose_response_was_lost_counts_once_it_is_durable(lab, standby):
    await lab.submit()
    # A commit waits for a standby that does not exist, after it has been written here.
    await standby.lose()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(lab.submit_all([lab.spec() for _ in range(3)]))
        pid = await blocked_backend(lab)
        await lab.conn.execute("select pg_terminate_backend($1)", pid)
        await standby.waiting("pg_logical_emit_message")
        assert not asked.done()
        await standby.forget()
    got = asked.result()
    assert [answer.created for answer in got] == [True] * 3
    assert [answer.stored.status for answer in got] == ["waiting"] * 3
    assert {answer.id for answer in got} < await ids_in(lab)


async def test_a_server_that_cannot_renew_its_number_admits_nothing(lab):
    await lab.submit()
    await lab.conn.execute("update servers set incarnation = gen_random_uuid()")
    await lab.clock.move(lab.settings.leases.ttl)
    submitter = lab.components.submitter
    (answer,) = await answers(submitter, [submitter.submit(lab.client, lab.spec())])
    assert isinstance(answer, Unavailable)
    assert await lab.count("tasks") == 1


async def test_every_request_of_a_failed_commit_gets_a_result(lab):
    submitter = lab.components.submitter
    await submitter._shapes.get_or_create([lab.spec()])
    async with asyncio.timeout(5):
        asking = asyncio.ensure_future(submitter.submit(lab.client, lab.spec()))
        while not submitter._queue.has_ready:
            await asyncio.sleep(0)
        lab.components.cluster_manager._number = None
        with pytest.raises(Conflict):
            await submitter.tick()
        with pytest.raises(Unavailable, match="not known"):
            await asking


async def test_a_task_is_stored_alike_alone_and_beside_one_with_a_key(lab):
    fields = {
        "name": "a",
        "labels": {"b": "c"},
        "priority": 3,
        "delay_tolerance": "9s",
        "execution_cap": "8s",
        "max_attempts": 7,
        "on_lost": "fail",
        "cpu": 2,
    }
    plain, due = lab.spec(**fields), lab.spec(**fields, run_at="2099-01-01T00:00:00Z")
    keyed = lab.spec(idempotency_key="k")
    apart = await lab.submit_all([plain, due])
    beside = await lab.submit_all([keyed, plain, due])
    assert [one.stored.status for one in apart] == ["waiting", "scheduled"]
    assert [one.stored.status for one in beside[1:]] == ["waiting", "scheduled"]
    for one, other in zip(apart, beside[1:], strict=True):
        for table in ("tasks", "live"):
            query = f"select to_jsonb(t) - 'id' as row from {table} t where id = $1"
            found = [await lab.conn.fetchval(query, task.id) for task in (one, other)]
            assert found[0] is not None
            assert found[0] == found[1]
