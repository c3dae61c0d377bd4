import asyncio
from collections import Counter

import asyncpg
import pytest

from duly.errors import DulyError, Invalid, KeyReused, LimitExceeded, Unavailable
from duly.model.bucket import Bucket, Rate
from duly.policy import admission
from duly.server import rate_limiter
from duly.store import buckets
from tests.server.lab import answers, seconds


@pytest.fixture
async def limited(lab):
    """A client whose plan admits one task a second, and ten at once."""
    await lab.conn.execute("delete from plans where name in ('slow', 'wide')")
    await lab.conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              tasks_per_hour, burst)
           values ('slow', '5 m', '1 h', '24 h', 1, 3600, 10),
                  ('wide', '5 m', '1 h', '24 h', 1, 3600, 1000)"""
    )
    await lab.conn.execute("insert into tenants (name, plan) values ('slow', 'slow')")
    yield await lab.credential("slow")
    await lab.conn.execute("update tenants set plan = 'unlimited'")


async def submit(lab, by, count=1, parts=None, **fields):
    return await lab.submit_all([lab.spec(**fields) for _ in range(count)], by=by, parts=parts)


def kinds(got):
    """Count the answers: the class of a refusal, or whether a task was created."""
    return Counter(
        type(one).__name__ if isinstance(one, BaseException) else one.created for one in got
    )


async def tokens(lab, who):
    return await lab.conn.fetchval("select tokens from buckets where tenant_id = $1", who.tenant_id)


async def another(lab):
    """Start another server."""
    other = lab.server()
    await other.cluster_manager.tick()
    return other


async def test_a_burst_is_admitted_and_the_rest_is_refused(lab, limited):
    got = await submit(lab, limited, 25)
    assert kinds(got) == {True: 10, "LimitExceeded": 15}
    assert await lab.count("tasks") == await lab.count("live") == 10
    assert await tokens(lab, limited) == 0


async def test_who_came_first_is_admitted(lab, limited):
    got = await submit(lab, limited, 12)
    assert [isinstance(one, LimitExceeded) for one in got] == [False] * 10 + [True] * 2


async def test_a_refusal_names_the_limit_and_when_to_come_back(lab, limited):
    got = await submit(lab, limited, 11)
    assert got[-1].message == (
        "Limit exceeded: 3600 tasks per hour, and at most 10 at once. Try again in 1 s."
    )
    assert got[-1].retry_after == seconds(1)
    assert got[-1].details["limit"] == "tasks_per_hour"


async def test_a_bucket_refills_with_time_and_never_beyond_its_burst(lab, limited):
    await submit(lab, limited, 10)
    await lab.clock.move(seconds(3))
    assert kinds(await submit(lab, limited, 5)) == {True: 3, "LimitExceeded": 2}
    for _ in range(5):
        await lab.clock.move(seconds(4))
        await lab.parts.cluster_manager.tick()
    assert kinds(await submit(lab, limited, 25)) == {True: 10, "LimitExceeded": 15}


async def test_a_clock_that_is_set_back_gives_nothing(lab, limited):
    await submit(lab, limited, 10)
    await lab.clock.move(seconds(-500))
    assert kinds(await submit(lab, limited, 5, parts=await another(lab))) == {"LimitExceeded": 5}
    await lab.clock.move(seconds(502))
    assert kinds(await submit(lab, limited, 5, parts=await another(lab))) == {
        True: 2,
        "LimitExceeded": 3,
    }


async def test_nobody_else_is_limited_by_it(lab, limited):
    mine = [lab.parts.submitter.submit(limited, lab.spec()) for _ in range(15)]
    theirs = [lab.parts.submitter.submit(lab.client, lab.spec()) for _ in range(15)]
    await lab.parts.submitter._shapes.learn([lab.spec()])
    got = await answers(lab.parts.submitter, [*mine, *theirs])
    assert kinds(got[:15]) == {True: 10, "LimitExceeded": 5}
    assert kinds(got[15:]) == {True: 15}


async def test_a_tenant_without_a_rate_has_no_bucket(lab, limited):
    await submit(lab, lab.client, 5)
    assert await lab.count("buckets") == 0


async def test_repeats_are_free_and_are_answered_when_the_bucket_is_empty(lab, limited):
    (first,) = await submit(lab, limited, idempotency_key="k")
    assert kinds(await submit(lab, limited, 5, idempotency_key="k")) == {False: 5}
    assert await tokens(lab, limited) == 9
    assert kinds(await submit(lab, limited, 10)) == {True: 9, "LimitExceeded": 1}
    (again,) = await submit(lab, limited, idempotency_key="k")
    assert (again.id, again.created) == (first.id, False)
    (reused,) = await submit(lab, limited, idempotency_key="k", name="other")
    assert isinstance(reused, KeyReused)
    (fresh,) = await submit(lab, limited, idempotency_key="new")
    assert isinstance(fresh, LimitExceeded)


async def test_a_key_that_was_refused_is_not_known(lab, limited):
    await submit(lab, limited, 10)
    (refused,) = await submit(lab, limited, idempotency_key="k")
    assert isinstance(refused, LimitExceeded)
    await lab.clock.move(seconds(1))
    (admitted,) = await submit(lab, limited, idempotency_key="k", name="another body")
    assert admitted.created


async def test_the_same_key_at_once_costs_one_token(lab, limited):
    got = await submit(lab, limited, 50, idempotency_key="k")
    assert kinds(got) == {True: 1, False: 49}
    specs = [lab.spec(idempotency_key=f"k{number % 12}") for number in range(48)]
    got = await lab.submit_all(specs, by=limited)
    assert kinds(got) == {True: 9, False: 27, "LimitExceeded": 12}
    assert await tokens(lab, limited) == 0


async def test_two_servers_together_admit_what_one_may(lab, limited):
    other = await another(lab)
    ours, theirs = await asyncio.gather(
        submit(lab, limited, 40), submit(lab, limited, 40, parts=other)
    )
    assert kinds(ours + theirs) == {True: 10, "LimitExceeded": 70}
    assert await lab.count("tasks") == 10


async def test_who_has_read_the_tokens_keeps_others_from_them(lab, limited, shared_dsn):
    other = await another(lab)
    await submit(lab, limited)
    await submit(lab, lab.client, parts=other)
    lines = [lab.parts.submitter._line, other.submitter._line]
    blocker = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    try:
        async with asyncio.TaskGroup() as group, blocker.transaction():
            # Who has read the tokens stands still before it writes: its key is being claimed.
            await blocker.execute(
                "insert into submissions values ($1, 'k', 'x', 1, null, now())", limited.tenant_id
            )
            specs = [lab.spec(idempotency_key="k"), *[lab.spec()] * 19]
            asked = [
                group.create_task(lab.submit_all(specs, by=limited, parts=parts))
                for parts in (lab.parts, other)
            ]
            while await waiting_for_a_lock(lab) + sum(bool(one.rest) for one in lines) < 2:
                await asyncio.sleep(0)
            await blocker.execute("delete from submissions where key = 'k'")
    finally:
        await blocker.close()
    assert kinds([one for task in asked for one in task.result()])[True] == 9


async def waiting_for_a_lock(lab):
    return await lab.conn.fetchval(
        """select count(*) from pg_stat_activity
            where datname = current_database() and application_name = 'duly'
              and state = 'active' and wait_event_type = 'Lock'"""
    )


async def test_a_restart_gives_nothing(lab, limited):
    await submit(lab, limited, 10)
    assert kinds(await submit(lab, limited, 5, parts=await another(lab))) == {"LimitExceeded": 5}


async def test_a_bucket_that_somebody_holds_is_waited_for_by_its_tenant_alone(
    lab, limited, shared_dsn
):
    await submit(lab, limited)
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    submitter = lab.parts.submitter
    try:
        async with holder.transaction():
            await buckets.lock(holder, limited.tenant_id)
            async with asyncio.TaskGroup() as group:
                held = group.create_task(submit(lab, limited, 3))
                assert kinds(await submit(lab, lab.client, 3)) == {True: 3}
                for _ in range(20):
                    await submitter.tick()
                assert not held.done()
                await holder.execute("update buckets set tokens = 2")
                group.create_task(commit_soon(holder))
    finally:
        await holder.close()
    assert kinds(held.result()) == {True: 2, "LimitExceeded": 1}


async def commit_soon(conn):
    await conn.execute("commit")
    await conn.execute("begin")


async def test_who_gives_up_while_its_bucket_is_held_is_not_stored(lab, limited, shared_dsn):
    await submit(lab, limited)
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    submitter = lab.parts.submitter
    try:
        async with holder.transaction():
            await buckets.lock(holder, limited.tenant_id)
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(submitter.submit(limited, lab.spec()))
                for _ in range(20):
                    await submitter.tick()
                asked.cancel()
        await submit(lab, limited)
    finally:
        await holder.close()
    assert await lab.count("tasks") == 2


async def test_a_batch_is_admitted_whole_or_not_at_all(lab, limited):
    submitter = lab.parts.submitter
    assert len(await submitter.submit_batch(limited, [lab.spec()] * 6)) == 6
    with pytest.raises(LimitExceeded) as caught:
        await submitter.submit_batch(limited, [lab.spec()] * 6)
    assert caught.value.retry_after == seconds(2)
    assert await lab.count("tasks") == await lab.count("live") == 6
    assert len(await submitter.submit_batch(limited, [lab.spec()] * 4)) == 4
    assert await tokens(lab, limited) == 0


async def test_a_batch_that_is_larger_than_the_burst_is_told_so(lab, limited):
    with pytest.raises(Invalid, match="Limit exceeded: a batch of 11 new tasks is larger than"):
        await lab.parts.submitter.submit_batch(limited, [lab.spec()] * 11)
    specs = [lab.spec(idempotency_key=str(number)) for number in range(11)]
    with pytest.raises(Invalid, match="larger than the 10 that the plan 'slow' admits at once"):
        await lab.parts.submitter.submit_batch(limited, specs, key="b")
    assert await lab.count("tasks") == await lab.count("submissions") == 0


async def test_a_batch_that_comes_again_is_free(lab, limited):
    submitter = lab.parts.submitter
    ids = await submitter.submit_batch(limited, [lab.spec()] * 10, key="b")
    assert await submitter.submit_batch(limited, [lab.spec()] * 10, key="b") == ids
    assert await tokens(lab, limited) == 0


async def test_only_what_is_new_in_a_batch_is_charged(lab, limited):
    submitter = lab.parts.submitter
    specs = [lab.spec(idempotency_key=str(number)) for number in range(4)]
    await submitter.submit_batch(limited, specs)
    assert await tokens(lab, limited) == 6
    mixed = [lab.spec(idempotency_key=str(number)) for number in range(7)]
    await submitter.submit_batch(limited, [*mixed, lab.spec(), lab.spec()])
    assert await tokens(lab, limited) == 1
    with pytest.raises(LimitExceeded):
        await submitter.submit_batch(limited, [lab.spec(idempotency_key=k) for k in ("8", "9")])
    with pytest.raises(LimitExceeded):
        await submitter.submit_batch(limited, [lab.spec(idempotency_key="8"), lab.spec()])
    assert await lab.count("tasks") == await lab.count("live") == 9
    assert await submitter.submit_batch(limited, specs)
    assert await tokens(lab, limited) == 1


async def test_batches_and_singles_of_two_servers_share_one_bucket(lab, limited):
    other = await another(lab)
    await lab.submit_all([lab.spec()], by=lab.client, parts=other)
    batches = [other.submitter.submit_batch(limited, [lab.spec()] * 3) for _ in range(3)]
    singles, *got = await asyncio.gather(submit(lab, limited, 30), *batches, return_exceptions=True)
    stored = kinds(singles)[True] + sum(len(one) for one in got if not isinstance(one, DulyError))
    # One task is another tenant's.
    assert stored == await lab.count("tasks") - 1 == 10 - await tokens(lab, limited)
    assert kinds(singles) == {
        True: kinds(singles)[True],
        "LimitExceeded": 30 - kinds(singles)[True],
    }


async def test_a_replay_is_charged(lab, limited):
    node = await lab.node()
    task = await lab.submit(by=limited)
    await node.report(await lab.start(node, task))
    await lab.parts.replayer.replay(limited, task)
    assert await tokens(lab, limited) == 8
    await submit(lab, limited, 8)
    with pytest.raises(LimitExceeded):
        await lab.parts.replayer.replay(limited, task)
    with pytest.raises(LimitExceeded):
        await (await another(lab)).replayer.replay(limited, task)
    assert await lab.count("tasks") == 10


async def test_a_change_of_the_plan_counts_at_once(lab, limited):
    await submit(lab, limited, 4)
    await lab.conn.execute("update plans set burst = 5 where name = 'slow'")
    assert kinds(await submit(lab, limited, 9)) == {True: 5, "LimitExceeded": 4}
    await lab.conn.execute(
        "update plans set burst = 100, tasks_per_hour = 36000 where name = 'slow'"
    )
    # Before what is remembered of the old plan is forgotten.
    await lab.clock.move(seconds(0.5))
    raised = await lab.credential("slow")
    assert kinds(await submit(lab, raised, 15)) == {True: 5, "LimitExceeded": 10}


async def test_a_plan_that_has_lost_its_rate_limits_nobody(lab, limited):
    await submit(lab, limited, 10)
    await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'slow'")
    await lab.clock.move(seconds(0.5))
    got = await submit(lab, limited, 5, parts=await another(lab))
    assert kinds(got) == {True: 5}
    other = await another(lab)
    assert len(await other.submitter.submit_batch(limited, [lab.spec()] * 9)) == 9


async def test_an_empty_bucket_is_refused_without_asking_until_it_refills(lab, limited):
    await submit(lab, limited, 11)
    # Nothing of it reaches the database, so nobody has to commit for an answer.
    with pytest.raises(LimitExceeded):
        await lab.parts.submitter.submit(limited, lab.spec())
    with pytest.raises(LimitExceeded) as caught:
        await lab.parts.submitter.submit_batch(limited, [lab.spec()] * 3)
    assert caught.value.retry_after == seconds(3)
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, limited, 2)) == {True: 1, "LimitExceeded": 1}


WAYS_IN = {
    "a task": lambda lab, by, _: lab.parts.submitter.submit(by, lab.spec()),
    "a batch": lambda lab, by, _: lab.parts.submitter.submit_batch(by, [lab.spec()]),
    "a graph": lambda lab, by, _: lab.parts.submitter.submit_graph(by, "g", [lab.spec()]),
    "a task that depends on another": lambda lab, by, ended: lab.parts.submitter.submit(
        by, lab.spec(depends_on=[str(ended)])
    ),
    "a replay": lambda lab, by, ended: lab.parts.replayer.replay(by, ended),
    "a replay with what came after": lambda lab, by, ended: lab.parts.downstream.replay(by, ended),
}


@pytest.mark.parametrize("way", WAYS_IN)
async def test_every_way_in_is_refused_by_what_is_remembered(lab, limited, way):
    (ended,) = await submit(lab, limited)
    await lab.parts.canceller.cancel(limited, [ended.id])
    # The database would admit it: whoever is refused was not looked up there.
    lab.parts.rate_limiter.note({limited.tenant_id: Bucket(Rate(3600, 10), 0.0, lab.clock.now)})
    with pytest.raises(LimitExceeded):
        await WAYS_IN[way](lab, limited, ended.id)
    assert (await tokens(lab, limited), await lab.count("tasks")) == (9, 1)


async def test_what_is_remembered_is_looked_at_again_after_a_second(lab, limited):
    await submit(lab, limited)
    lab.parts.rate_limiter.note({limited.tenant_id: Bucket(Rate(3600, 10), 0.0, lab.clock.now)})
    await lab.clock.move(seconds(0.9))
    with pytest.raises(LimitExceeded):
        await lab.parts.submitter.submit_batch(limited, [lab.spec()] * 5)
    await lab.clock.move(seconds(0.2))
    assert len(await lab.parts.submitter.submit_batch(limited, [lab.spec()] * 5)) == 5


def test_only_so_many_buckets_are_remembered(monkeypatch):
    monkeypatch.setattr(rate_limiter, "MOST", 3)
    limiter = rate_limiter.RateLimiter()
    for tenant in range(5):
        limiter.note({tenant: Bucket(Rate(3600, 10), 10.0, None)})
    assert list(limiter._remembered) == [2, 3, 4]


async def test_a_commit_that_failed_charges_nothing(lab, limited, shared_dsn):
    await submit(lab, limited, 2)
    specs = [lab.spec(name="a") for _ in range(3)]
    await lab.conn.execute("alter table live add constraint odd check (tenant_id < 0) not valid")
    try:
        got = await lab.submit_all(specs, by=limited)
    finally:
        await lab.conn.execute("alter table live drop constraint odd")
    assert kinds(got) == {"Invalid": 3}
    assert await tokens(lab, limited) == 8


async def test_the_statement_and_the_policy_count_alike(lab, limited):
    rate = Rate(3600, 10)
    bucket = Bucket(rate, 10.0, lab.clock.now)
    for step, (wait, asked) in enumerate(
        [(0, 4), (0.25, 9), (1.5, 1), (0.333333, 3), (7.75, 6), (60, 2), (0.5, 20)]
    ):
        await lab.clock.move(seconds(wait))
        bucket = admission.fill(bucket, lab.clock.now)
        expected = min(asked, bucket.whole)
        got = kinds(await submit(lab, limited, asked, parts=await another(lab)))
        assert got[True] == expected, step
        match admission.decide(bucket, expected):
            case admission.Admit(left):
                bucket = left
        found = await buckets.read(lab.conn, limited.tenant_id)
        assert admission.fill(found.bucket, found.now) == bucket


async def test_a_lost_answer_is_not_charged_twice(lab, limited, standby):
    await submit(lab, limited)
    await standby.lose()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(submit(lab, limited, 3))
        pid = None
        while pid is None:
            pid = await lab.conn.fetchval(
                """select pid from pg_stat_activity where datname = current_database()
                     and application_name = 'duly' and wait_event = 'SyncRep'"""
            )
            await asyncio.sleep(0)
        await lab.conn.execute("select pg_terminate_backend($1)", pid)
        await standby.waiting("pg_logical_emit_message")
        await standby.forget()
    assert kinds(asked.result()) == {True: 3}
    assert await tokens(lab, limited) == 6


async def test_a_tenant_whose_bucket_was_taken_away_gets_another(lab, limited):
    await submit(lab, limited, 10)
    await lab.conn.execute("delete from buckets")
    got = await submit(lab, limited, 12, parts=await another(lab))
    assert kinds(got) == {True: 10, "LimitExceeded": 2}
    assert not any(isinstance(one, Unavailable) for one in got)
