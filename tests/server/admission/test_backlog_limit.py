import asyncio
from collections import Counter

import msgspec
import pytest

from duly.errors import Invalid, LimitExceeded
from duly.model.task import OnConflict, Outcome, Unique
from duly.server import backlog
from tests.server.lab import answers, seconds


@pytest.fixture
async def small(lab):
    """A client of whose tasks five may wait."""
    await lab.conn.execute("delete from plans where name = 'small'")
    await lab.conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              max_waiting)
           values ('small', '5 m', '1 h', '24 h', 1, 5)"""
    )
    await lab.conn.execute("insert into tenants (name, plan) values ('small', 'small')")
    yield await lab.credential("small")
    await lab.conn.execute("update tenants set plan = 'unlimited'")


async def submit(lab, by, count=1, parts=None, **fields):
    return await lab.submit_all([lab.spec(**fields) for _ in range(count)], by=by, parts=parts)


def kinds(got):
    return Counter(
        type(one).__name__ if isinstance(one, BaseException) else one.created for one in got
    )


async def another(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    return other


async def test_so_many_may_wait_and_no_more(lab, small):
    assert kinds(await submit(lab, small, 20)) == {True: 5, "LimitExceeded": 15}
    (refused,) = await submit(lab, small)
    assert refused.message == (
        "Limit exceeded: at most 5 tasks may wait in the plan 'small'. "
        "Try again when some have started."
    )
    assert refused.details["limit"] == "max_waiting"
    narrow = msgspec.structs.replace(small.plan, max_waiting=1)
    assert "at most 1 task may wait in" in backlog.refusal(narrow, 1).message
    assert kinds(await submit(lab, lab.client, 20)) == {True: 20}


async def test_only_so_many_tenants_are_counted(lab, small, monkeypatch):
    monkeypatch.setattr(backlog, "MOST", 3)
    counts = backlog.Backlog(lab.database)
    for tenant_id in range(5):
        tenant = msgspec.structs.replace(small, tenant_id=tenant_id)
        await counts.enter(tenant, 1, is_known=None)
        counts.leave(tenant, 1, stored=0)
    assert list(counts._counts) == [2, 3, 4]


async def test_tasks_for_later_wait_too(lab, small):
    assert kinds(await submit(lab, small, 3, run_at=lab.clock.now + seconds(99))) == {True: 3}
    assert kinds(await submit(lab, small, 3)) == {True: 2, "LimitExceeded": 1}


async def test_what_has_started_makes_room_within_a_second(lab, small):
    await submit(lab, small, 5)
    node = await lab.node()
    await lab.schedule()
    assert len(await node.starts()) == 5
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, small, 9)) == {True: 5, "LimitExceeded": 4}


async def test_another_server_counts_what_waits_from_the_rows_themselves(lab, small):
    await submit(lab, small, 4)
    other = await another(lab)
    assert kinds(await submit(lab, small, 3, parts=other)) == {True: 1, "LimitExceeded": 2}
    # The slack: what another server has let in is seen a second later.
    await lab.conn.execute("delete from live")
    assert kinds(await submit(lab, small, 3)) == {True: 1, "LimitExceeded": 2}
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, small, 9)) == {True: 4, "LimitExceeded": 5}


async def test_two_servers_at_once_let_in_no_more_than_each_may_alone(lab, small):
    other = await another(lab)
    ours, theirs = await asyncio.gather(submit(lab, small, 20), submit(lab, small, 20, parts=other))
    assert 5 <= kinds(ours + theirs)[True] <= 2 * 5
    await lab.clock.move(seconds(1))
    for parts in (lab.parts, other):
        assert kinds(await submit(lab, small, 3, parts=parts)) == {"LimitExceeded": 3}


async def test_what_was_refused_or_failed_takes_no_room(lab, small):
    # Whoever is refused by the database itself leaves nothing behind, not even in memory.
    await lab.conn.execute("alter table live add constraint odd check (tenant_id < 0) not valid")
    try:
        assert kinds(await submit(lab, small, 5)) == {"Invalid": 5}
    finally:
        await lab.conn.execute("alter table live drop constraint odd")
    assert kinds(await submit(lab, small, 6)) == {True: 5, "LimitExceeded": 1}


async def test_who_gives_up_takes_no_room(lab, small):
    await lab.parts.submitter._shapes.learn([lab.spec()])
    submitter = lab.parts.submitter
    async with asyncio.TaskGroup() as group:
        gone = [group.create_task(submitter.submit(small, lab.spec())) for _ in range(5)]
        while not submitter._line.is_ready:
            await asyncio.sleep(0)
        for one in gone:
            one.cancel()
    await submitter.tick()
    await lab.conn.execute("delete from live")
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, small, 6)) == {True: 5, "LimitExceeded": 1}


async def test_repeats_need_no_room(lab, small):
    (first,) = await submit(lab, small, idempotency_key="k")
    ids = await lab.parts.submitter.submit_batch(small, [lab.spec()] * 4, key="b")
    (again,) = await submit(lab, small, idempotency_key="k")
    assert (again.id, again.created) == (first.id, False)
    assert await lab.parts.submitter.submit_batch(small, [lab.spec()] * 4, key="b") == ids
    assert kinds(await submit(lab, small, idempotency_key="new")) == {"LimitExceeded": 1}


async def test_whoever_asks_for_the_task_that_holds_a_key_needs_no_room(lab, small):
    held = Unique("k", on_conflict=OnConflict.RETURN)
    given = msgspec.structs.replace(lab.spec(), unique=held)
    submitter = lab.parts.submitter
    (first,) = await answers(submitter, [submitter.submit(small, given)])
    await submit(lab, small, 4)
    (again,) = await answers(submitter, [submitter.submit(small, given)])
    assert (again.id, again.created) == (first.id, False)


async def test_a_batch_has_room_as_a_whole_or_not_at_all(lab, small):
    submitter = lab.parts.submitter
    await submitter.submit_batch(small, [lab.spec()] * 3)
    with pytest.raises(LimitExceeded):
        await submitter.submit_batch(small, [lab.spec()] * 3)
    await submitter.submit_batch(small, [lab.spec()] * 2)
    with pytest.raises(Invalid, match="a batch of 6 tasks is larger than the 5 that the plan"):
        await submitter.submit_batch(small, [lab.spec()] * 6)
    assert await lab.count("live") == 5


async def test_a_replay_needs_room(lab, small):
    node = await lab.node()
    task = await lab.submit(by=small)
    await node.report(await lab.start(node, task), Outcome.SUCCEEDED)
    await lab.clock.move(seconds(1))
    await submit(lab, small, 4)
    await lab.parts.replayer.replay(small, task)
    with pytest.raises(LimitExceeded):
        await lab.parts.replayer.replay(small, task)
