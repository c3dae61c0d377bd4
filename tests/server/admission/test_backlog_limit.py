import asyncio
from collections import Counter

import msgspec
import pytest

from duly.errors import Invalid, LimitExceeded
from duly.model.task import OnConflict, Outcome, Unique
from duly.server.admission import backlog_limit
from tests.server.lab import answers, seconds


@pytest.fixture
async def small(lab):
    """A client with `max_waiting` = 5."""
    await lab.conn.execute("delete from plans where name = 'small'")
    await lab.conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              max_waiting)
           values ('small', '5 m', '1 h', '24 h', 1, 5)"""
    )
    await lab.conn.execute("insert into tenants (name, plan) values ('small', 'small')")
    yield await lab.credential("small")
    await lab.conn.execute("update tenants set plan = 'unlimited'")


async def submit(lab, by, count=1, components=None, **fields):
    return await lab.submit_all(
        [lab.spec(**fields) for _ in range(count)], by=by, components=components
    )


def kinds(got):
    return Counter(
        type(one).__name__ if isinstance(one, BaseException) else one.created for one in got
    )


async def another(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    return other


async def test_submissions_over_the_limit_are_refused(lab, small):
    assert kinds(await submit(lab, small, 20)) == {True: 5, "LimitExceeded": 15}
    (refused,) = await submit(lab, small)
    assert refused.message == (
        "Limit exceeded: the plan 'small' lets at most 5 tasks wait. "
        "Try again when some have started."
    )
    assert refused.details["limit"] == "max_waiting"
    narrow = msgspec.structs.replace(small.plan, max_waiting=1)
    assert "lets at most 1 task wait" in backlog_limit.backlog_exceeded(narrow, 1).message
    assert kinds(await submit(lab, lab.client, 20)) == {True: 20}


async def test_the_number_of_cached_tenants_is_limited(lab, small, monkeypatch):
    monkeypatch.setattr(backlog_limit, "MAX_CACHED_TENANTS", 3)
    limit = backlog_limit.BacklogLimit(lab.database)
    for tenant_id in range(5):
        tenant = msgspec.structs.replace(small, tenant_id=tenant_id)
        await limit.acquire(tenant, 1, is_duplicate=None)
        limit.release(tenant, 1, stored=0)
    assert list(limit._backlogs) == [2, 3, 4]


async def test_scheduled_tasks_count_as_waiting(lab, small):
    assert kinds(await submit(lab, small, 3, run_at=lab.clock.now + seconds(99))) == {True: 3}
    assert kinds(await submit(lab, small, 3)) == {True: 2, "LimitExceeded": 1}


async def test_a_started_task_makes_room_within_a_second(lab, small):
    await submit(lab, small, 5)
    node = await lab.node()
    await lab.schedule()
    assert len(await node.starts()) == 5
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, small, 9)) == {True: 5, "LimitExceeded": 4}


async def test_another_server_counts_the_rows(lab, small):
    await submit(lab, small, 4)
    other = await another(lab)
    assert kinds(await submit(lab, small, 3, components=other)) == {True: 1, "LimitExceeded": 2}
    # The slack: tasks that another server has admitted are counted a second later.
    await lab.conn.execute("delete from live")
    assert kinds(await submit(lab, small, 3)) == {True: 1, "LimitExceeded": 2}
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, small, 9)) == {True: 4, "LimitExceeded": 5}


async def test_two_servers_admit_at_most_the_limit_each(lab, small):
    other = await another(lab)
    ours, theirs = await asyncio.gather(
        submit(lab, small, 20), submit(lab, small, 20, components=other)
    )
    assert 5 <= kinds(ours + theirs)[True] <= 2 * 5
    await lab.clock.move(seconds(1))
    for components in (lab.components, other):
        assert kinds(await submit(lab, small, 3, components=components)) == {"LimitExceeded": 3}


async def test_a_refused_or_failed_submission_takes_no_room(lab, small):
    # A submission that the database refuses leaves nothing behind, not even in memory.
    await lab.conn.execute("alter table live add constraint odd check (tenant_id < 0) not valid")
    try:
        assert kinds(await submit(lab, small, 5)) == {"Invalid": 5}
    finally:
        await lab.conn.execute("alter table live drop constraint odd")
    assert kinds(await submit(lab, small, 6)) == {True: 5, "LimitExceeded": 1}


async def test_a_cancelled_submission_takes_no_room(lab, small):
    await lab.components.submitter._shapes.get_or_create([lab.spec()])
    submitter = lab.components.submitter
    async with asyncio.TaskGroup() as group:
        gone = [group.create_task(submitter.submit(small, lab.spec())) for _ in range(5)]
        while not submitter._queue.has_ready:
            await asyncio.sleep(0)
        for one in gone:
            one.cancel()
    await submitter.tick()
    await lab.conn.execute("delete from live")
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, small, 6)) == {True: 5, "LimitExceeded": 1}


async def test_duplicates_need_no_room(lab, small):
    (first,) = await submit(lab, small, idempotency_key="k")
    ids = (await lab.components.submitter.submit_batch(small, [lab.spec()] * 4, key="b")).ids
    (again,) = await submit(lab, small, idempotency_key="k")
    assert (again.id, again.created) == (first.id, False)
    again = await lab.components.submitter.submit_batch(small, [lab.spec()] * 4, key="b")
    assert again.ids == ids
    assert kinds(await submit(lab, small, idempotency_key="new")) == {"LimitExceeded": 1}


async def test_a_submission_that_returns_the_holder_of_its_unique_key_needs_no_room(lab, small):
    held = Unique("k", on_conflict=OnConflict.RETURN)
    given = msgspec.structs.replace(lab.spec(), unique=held)
    submitter = lab.components.submitter
    (first,) = await answers(submitter, [submitter.submit(small, given)])
    await submit(lab, small, 4)
    (again,) = await answers(submitter, [submitter.submit(small, given)])
    assert (again.id, again.created) == (first.id, False)


async def test_a_batch_is_admitted_as_a_whole_or_not_at_all(lab, small):
    submitter = lab.components.submitter
    await submitter.submit_batch(small, [lab.spec()] * 3)
    with pytest.raises(LimitExceeded):
        await submitter.submit_batch(small, [lab.spec()] * 3)
    await submitter.submit_batch(small, [lab.spec()] * 2)
    with pytest.raises(Invalid, match="6 are more than the 5 that the plan"):
        await submitter.submit_batch(small, [lab.spec()] * 6)
    assert await lab.count("live") == 5


async def test_a_replay_needs_room(lab, small):
    node = await lab.node()
    task = await lab.submit(by=small)
    await node.report(await lab.start(node, task), Outcome.SUCCEEDED)
    await lab.clock.move(seconds(1))
    await submit(lab, small, 4)
    await lab.components.replayer.replay(small, task)
    with pytest.raises(LimitExceeded):
        await lab.components.replayer.replay(small, task)
