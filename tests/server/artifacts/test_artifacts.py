"""The life of artifacts: references that keep them, and the removal of unused ones."""

import asyncio
import hashlib
from datetime import timedelta

import msgspec
import pytest

from duly.errors import Conflict, LimitExceeded, NotFound, UnknownArtifact
from duly.model.graph import Dependency
from duly.model.task import Outcome
from duly.server.artifacts import artifact_gc
from duly.store.tasks import artifacts
from duly.store.tasks.artifacts import Blob
from tests.server.calendar import Calendar
from tests.server.lab import seconds

DATA = b"a bundle"
HASH = hashlib.sha256(DATA).hexdigest()
DAY = timedelta(days=1)


async def upload(components, who, data=DATA):
    """Upload an artifact; return whether it is new."""
    begun = await components.artifacts.begin(who, hashlib.sha256(data).digest(), len(data))
    if begun is None:
        return False
    async with begun:
        await begun.write(data)
        begun.verify()
        return await begun.finish()


@pytest.fixture
async def bundle(lab):
    """The hash of an artifact that the client has."""
    assert await upload(lab.components, lab.client)
    return HASH


@pytest.fixture
def calendar(lab):
    return Calendar(lab)


async def kept(lab, components=None):
    """Return the names of the bytes in the object store; here each server has one of its own."""
    object_store = (components or lab.components).artifacts._object_store
    found = set()
    for tenant in await object_store.tenants():
        async for some in object_store.blobs(tenant):
            found |= some.keys()
    return found


async def pass_by(lab, by):
    """Let time pass, and let the leader remove what is not needed."""
    await lab.clock.move(by)
    await lab.components.cluster_manager.tick()
    await lab.components.usage_recorder.tick()
    while await lab.components.retention.tick():
        pass


async def is_there(lab, who=None):
    async with lab.database.reading_for((who or lab.client).tenant_id) as conn:
        found = await artifacts.find(conn, (who or lab.client).tenant_id, bytes.fromhex(HASH))
    return found is not None


async def remove(lab, who=None):
    await lab.components.artifacts.remove(who or lab.client, bytes.fromhex(HASH))


async def anybody_waits(lab):
    """Wait until a statement waits for a lock."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while not await lab.conn.fetchval(waiting):
            await asyncio.sleep(0.01)


async def test_an_artifact_of_a_live_task_is_not_removed(lab, bundle):
    node = await lab.node()
    task = await lab.submit(artifact=bundle)
    with pytest.raises(Conflict, match=f"The task {task} uses the artifact"):
        await remove(lab)
    ref = await lab.start(node, task)
    await node.report(ref, Outcome.FAILED)
    with pytest.raises(Conflict):
        await remove(lab)
    await lab.components.canceller.cancel(lab.client, [task])
    await remove(lab)
    assert await kept(lab) == set()
    with pytest.raises(NotFound):
        await remove(lab)


async def test_a_task_with_an_unknown_artifact_is_refused(lab, bundle):
    unknown = "0" * 64
    asked = (
        lab.components.submitter.submit(lab.client, lab.spec(artifact=unknown)),
        lab.components.submitter.submit_batch(
            lab.client, [lab.spec(), lab.spec(artifact=bundle), lab.spec(artifact=unknown)]
        ),
        lab.components.submitter.submit(lab.stranger, lab.spec(artifact=bundle)),
    )
    for one in asked:
        with pytest.raises(UnknownArtifact, match="Upload it first"):
            await one
    assert await lab.count("tasks") == await lab.count("live") == 0
    assert await lab.count("artifact_uses") == 0


async def test_a_repeat_of_a_known_key_needs_no_artifact(lab, bundle):
    asked = lab.spec(artifact=bundle, idempotency_key="k")
    first = await lab.components.submitter.submit(lab.client, asked)
    await lab.components.canceller.cancel(lab.client, [first.id])
    await remove(lab)
    again = await lab.components.submitter.submit(lab.client, asked)
    assert (again.id, again.created) == (first.id, False)


async def test_a_removal_waits_for_what_is_being_stored_and_is_then_refused(
    lab, bundle, monkeypatch
):
    held, go_on = asyncio.Event(), asyncio.Event()
    use = artifacts.add_uses

    async def slow(conn, *arguments):
        unknown = await use(conn, *arguments)
        held.set()
        await go_on.wait()
        return unknown

    monkeypatch.setattr(artifacts, "add_uses", slow)
    async with asyncio.TaskGroup() as group:
        storing = group.create_task(
            lab.components.submitter.submit(lab.client, lab.spec(artifact=bundle))
        )
        await held.wait()
        removing = group.create_task(_attempted(remove(lab)))
        await anybody_waits(lab)
        # Nor does the leader take it away.
        await lab.clock.move(DAY * 9)
        async with lab.database.transaction() as conn:
            assert await artifacts.expire(conn, unused_for=DAY, limit=10) == []
        go_on.set()
    assert storing.result().created
    assert isinstance(removing.result(), Conflict)
    assert await is_there(lab)


async def test_a_submission_waits_for_a_removal_and_is_then_refused(lab, bundle, monkeypatch):
    held, go_on = asyncio.Event(), asyncio.Event()
    read_user = artifacts.read_user

    async def slow(*arguments):
        user = await read_user(*arguments)
        held.set()
        await go_on.wait()
        return user

    monkeypatch.setattr(artifacts, "read_user", slow)
    async with asyncio.TaskGroup() as group:
        removing = group.create_task(remove(lab))
        await held.wait()
        storing = group.create_task(
            _attempted(lab.components.submitter.submit(lab.client, lab.spec(artifact=bundle)))
        )
        await anybody_waits(lab)
        go_on.set()
    assert removing.result() is None
    assert isinstance(storing.result(), UnknownArtifact)
    assert await lab.count("live") == 0


async def _attempted(asked):
    try:
        return await asked
    except Exception as error:
        return error


async def test_the_quota_holds_for_two_servers_at_once(lab):
    await lab.conn.execute("delete from plans where name = 'small'")
    await lab.conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              artifact_bytes)
           values ('small', '5 m', '1 h', '24 h', 1, 5 * 4096)"""
    )
    await lab.conn.execute("insert into tenants (name, plan) values ('small', 'small')")
    who = await lab.credential("small")
    other = lab.server()
    await other.cluster_manager.tick()
    got = await asyncio.gather(
        *(
            _attempted(upload(server, who, f"{number}".encode()))
            for number, server in enumerate([lab.components, other] * 4)
        )
    )
    assert (got.count(True), sum(isinstance(one, LimitExceeded) for one in got)) == (5, 3)
    assert await lab.count("artifacts") == 5
    assert len(await kept(lab)) + len(await kept(lab, other)) == 5
    await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'small'")


async def test_an_unused_artifact_is_removed_after_a_week_with_its_bytes(lab, bundle):
    assert await upload(lab.components, lab.stranger)
    assert len(await kept(lab)) == 2
    await pass_by(lab, DAY * 6)
    assert await lab.count("artifacts") == 2
    await lab.submit(artifact=bundle, run_at=lab.clock.now + DAY * 20)
    await pass_by(lab, DAY * 2)
    assert (await is_there(lab), await is_there(lab, lab.stranger)) == (True, False)
    assert len(await kept(lab)) == 1


async def test_a_week_counts_from_the_end_of_the_last_task(lab, bundle):
    task = await lab.submit(artifact=bundle, run_at=lab.clock.now + DAY * 20)
    await pass_by(lab, DAY * 10)
    await lab.components.canceller.cancel(lab.client, [task])
    await pass_by(lab, seconds(1))
    assert await lab.count("artifact_uses") == 0
    await pass_by(lab, DAY * 6)
    assert await is_there(lab)
    await pass_by(lab, DAY * 2)
    assert not await is_there(lab)
    assert await kept(lab) == set()


async def test_the_week_counts_from_the_last_upload(lab, bundle):
    """Whoever sends it means to use it, and is told that it is there."""
    await pass_by(lab, DAY * 6)
    assert not await upload(lab.components, lab.client)
    await pass_by(lab, DAY * 2)
    assert await is_there(lab)


async def test_a_week_counts_from_when_something_else_was_asked_for(lab, bundle, calendar):
    task = await lab.submit(artifact=bundle, run_at=lab.clock.now + DAY * 40)
    await pass_by(lab, DAY * 10)
    await lab.components.updater.update(lab.client, task, {"artifact": None})
    await pass_by(lab, seconds(1))
    assert await is_there(lab)
    one = await calendar.create(task={"artifact": bundle}, every="90d")
    await pass_by(lab, DAY * 10)
    await lab.components.schedules.update(lab.client, one, {"task": {"command": ["true"]}})
    await pass_by(lab, seconds(1))
    assert await is_there(lab)
    await pass_by(lab, DAY * 8)
    assert not await is_there(lab)


async def test_orphaned_bytes_are_swept_once_no_upload_can_own_them(lab, bundle):
    object_store = lab.components.artifacts._object_store
    (known,) = await kept(lab)
    orphan = Blob(lab.client.tenant_id, known + 1, 8)
    await object_store.put(orphan.tenant_id, orphan.id, 0, DATA)
    await pass_by(lab, seconds(3600))
    assert await kept(lab) == {known, orphan.id}
    await pass_by(lab, DAY * 1.1)
    assert await kept(lab) == {known}


async def test_a_row_whose_bytes_were_not_deleted_in_time_is_gone_all_the_same(
    lab, bundle, monkeypatch
):
    async def fail(*_):
        raise OSError("the store is away")

    drop = type(lab.components.artifacts._object_store).drop
    monkeypatch.setattr(type(lab.components.artifacts._object_store), "drop", fail)
    await remove(lab)
    assert not await is_there(lab)
    assert len(await kept(lab)) == 1
    monkeypatch.setattr(type(lab.components.artifacts._object_store), "drop", drop)
    # The same bytes again are others, which the sweep leaves alone.
    await lab.clock.move(seconds(2))
    assert await upload(lab.components, lab.client)
    await lab.submit(artifact=HASH, run_at=lab.clock.now + DAY * 20)
    await pass_by(lab, DAY * 1.1)
    assert len(await kept(lab)) == 1
    assert not await upload(lab.components, lab.client)


async def test_replays_graphs_and_updates_reference_their_artifacts(lab, bundle):
    task = await lab.submit(artifact=bundle)
    await lab.components.canceller.cancel(lab.client, [task])
    again = await lab.components.replayer.replay(lab.client, task)
    with pytest.raises(Conflict, match=f"{again}"):
        await remove(lab)
    # What it asks for can change, and what it needs with it.
    await lab.components.updater.update(lab.client, again, {"artifact": None})
    _, batch = await lab.components.submitter.submit_graph(
        lab.client,
        "g",
        [
            lab.spec(ref="a"),
            msgspec.structs.replace(
                lab.spec(ref="b", artifact=bundle), depends_on=[Dependency("a")]
            ),
        ],
    )
    with pytest.raises(Conflict, match=f"{batch.ids[1]}"):
        await remove(lab)
    await lab.components.updater.update(lab.client, again, {"artifact": bundle})
    await lab.components.canceller.cancel(lab.client, batch.ids)
    with pytest.raises(Conflict, match=f"{again}"):
        await remove(lab)
    with pytest.raises(UnknownArtifact):
        await lab.components.updater.update(lab.client, again, {"artifact": "1" * 64})
    await lab.components.updater.update(lab.client, again, {"command": ["false"]})
    stored = await lab.conn.fetchval(
        "select payload ->> 'artifact' from tasks where id = $1", again
    )
    assert stored == bundle
    await lab.components.updater.update(lab.client, again, {"source": "#!/bin/sh"})
    await remove(lab)
    with pytest.raises(UnknownArtifact):
        await lab.components.replayer.replay(lab.client, task)


async def test_a_schedule_references_the_artifacts_of_its_tasks(lab, bundle, calendar):
    with pytest.raises(UnknownArtifact):
        await calendar.create(task={"artifact": "2" * 64})
    one = await calendar.create(
        task={"artifact": bundle}, every="30d", start_at=calendar.at(1).isoformat()
    )
    await pass_by(lab, DAY * 10)
    assert await is_there(lab)
    with pytest.raises(Conflict, match=f"The schedule {one} uses the artifact"):
        await remove(lab)
    run = await lab.components.schedules.run(lab.client, one)
    await lab.components.schedules.update(lab.client, one, {"task": {"command": ["true"]}})
    with pytest.raises(Conflict, match=f"The task {run.id}"):
        await remove(lab)
    await lab.components.canceller.cancel(lab.client, [run.id])
    graph = await calendar.create(task={"artifact": bundle}, graph={"a": [], "b": ["a"]})
    with pytest.raises(Conflict, match=f"{graph}"):
        await remove(lab)
    await lab.components.schedules.remove(lab.client, graph)
    await remove(lab)


async def test_tasks_of_a_schedule_reference_its_artifact_too(lab, bundle, calendar):
    one = await calendar.create(task={"artifact": bundle})
    await calendar.go(1)
    await lab.components.schedules.remove(lab.client, one)
    (task,) = [row["id"] for row in await lab.conn.fetch("select id from live")]
    with pytest.raises(Conflict, match=f"The task {task}"):
        await remove(lab)


async def test_artifacts_of_a_removed_tenant_are_removed_at_once(lab):
    assert await upload(lab.components, lab.stranger)
    await lab.components.tenants.remove(lab.client, lab.stranger.tenant_id)
    with pytest.raises(NotFound):
        await upload(lab.components, lab.stranger, b"more")
    await pass_by(lab, seconds(1))
    assert await lab.count("artifacts") == 0
    assert await kept(lab) == set()


async def test_the_scan_of_references_continues_at_its_cursor(lab, bundle, monkeypatch):
    monkeypatch.setattr(artifact_gc, "USES_PER_BATCH", 2)
    tasks = [await lab.submit(artifact=bundle) for _ in range(5)]
    await lab.components.canceller.cancel(lab.client, tasks[1:])
    await pass_by(lab, seconds(1))
    left = [row["used_by"] for row in await lab.conn.fetch("select used_by from artifact_uses")]
    assert left == tasks[:1]
