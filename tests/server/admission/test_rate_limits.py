import asyncio
from collections import Counter

import asyncpg
import pytest

from duly.errors import DulyError, Invalid, KeyReused, LimitExceeded, Unavailable
from duly.model.bucket import Bucket, Rate
from duly.policy import admission
from duly.server.admission import rate_limiter
from duly.store.accounts import buckets
from tests.server.lab import answers, seconds


@pytest.fixture
async def limited(lab):
    """A client whose plan has a rate of one task a second and a burst of ten."""
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


async def submit(lab, by, count=1, components=None, **fields):
    return await lab.submit_all(
        [lab.spec(**fields) for _ in range(count)], by=by, components=components
    )


def kinds(got):
    """Count the results: the class of an error, or whether a task was created."""
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


async def test_the_first_submissions_are_admitted(lab, limited):
    got = await submit(lab, limited, 12)
    assert [isinstance(one, LimitExceeded) for one in got] == [False] * 10 + [True] * 2


async def test_a_refusal_names_the_limit_and_when_to_retry(lab, limited):
    got = await submit(lab, limited, 11)
    assert got[-1].message == (
        "Limit exceeded: the plan allows 3600 tasks per hour, and at most 10 at once. Try again in "
        "1 s."
    )
    assert got[-1].retry_after == seconds(1)
    assert got[-1].details["limit"] == "tasks_per_hour"


async def test_a_bucket_refills_with_time_and_never_beyond_its_burst(lab, limited):
    await submit(lab, limited, 10)
    await lab.clock.move(seconds(3))
    assert kinds(await submit(lab, limited, 5)) == {True: 3, "LimitExceeded": 2}
    for _ in range(5):
        await lab.clock.move(seconds(4))
        await lab.components.cluster_manager.tick()
    assert kinds(await submit(lab, limited, 25)) == {True: 10, "LimitExceeded": 15}


async def test_a_clock_that_is_set_back_adds_no_tokens(lab, limited):
    await submit(lab, limited, 10)
    await lab.clock.move(seconds(-500))
    assert kinds(await submit(lab, limited, 5, components=await another(lab))) == {
        "LimitExceeded": 5
    }
    await lab.clock.move(seconds(502))
    assert kinds(await submit(lab, limited, 5, components=await another(lab))) == {
        True: 2,
        "LimitExceeded": 3,
    }


async def test_other_tenants_are_not_limited(lab, limited):
    mine = [lab.components.submitter.submit(limited, lab.spec()) for _ in range(15)]
    theirs = [lab.components.submitter.submit(lab.client, lab.spec()) for _ in range(15)]
    await lab.components.submitter._shapes.get_or_create([lab.spec()])
    got = await answers(lab.components.submitter, [*mine, *theirs])
    assert kinds(got[:15]) == {True: 10, "LimitExceeded": 5}
    assert kinds(got[15:]) == {True: 15}


async def test_a_tenant_without_a_rate_has_no_bucket(lab, limited):
    await submit(lab, lab.client, 5)
    assert await lab.count("buckets") == 0


async def test_duplicates_are_free_even_with_an_empty_bucket(lab, limited):
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


async def test_a_refused_submission_does_not_use_its_key(lab, limited):
    await submit(lab, limited, 10)
    (refused,) = await submit(lab, limited, idempotency_key="k")
    assert isinstance(refused, LimitExceeded)
    await lab.clock.move(seconds(1))
    (admitted,) = await submit(lab, limited, idempotency_key="k", name="another body")
    assert admitted.created


async def test_concurrent_submissions_with_one_key_cost_one_token(lab, limited):
    got = await submit(lab, limited, 50, idempotency_key="k")
    assert kinds(got) == {True: 1, False: 49}
    specs = [lab.spec(idempotency_key=f"k{number % 12}") for number in range(48)]
    got = await lab.submit_all(specs, by=limited)
    assert kinds(got) == {True: 9, False: 27, "LimitExceeded": 12}
    assert await tokens(lab, limited) == 0


async def test_two_servers_together_admit_one_burst(lab, limited):
    other = await another(lab)
    ours, theirs = await asyncio.gather(
        submit(lab, limited, 40), submit(lab, limited, 40, components=other)
    )
    assert kinds(ours + theirs) == {True: 10, "LimitExceeded": 70}
    assert await lab.count("tasks") == 10


def backing_off(queues):
    return sum(bool(queue.seconds_to_backoff_end) for queue in queues)


async def test_a_transaction_that_has_read_a_bucket_locks_it(lab, limited, shared_dsn):
    other = await another(lab)
    await submit(lab, limited)
    await submit(lab, lab.client, components=other)
    queues = [lab.components.submitter._queue, other.submitter._queue]
    blocker = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    try:
        async with asyncio.TaskGroup() as group, blocker.transaction():
            # The transaction that has read the tokens waits before it writes: its key is locked.
            await blocker.execute(
                "insert into submissions values ($1, 'k', 'x', 1, null, now())", limited.tenant_id
            )
            specs = [lab.spec(idempotency_key="k"), *[lab.spec()] * 19]
            asked = [
                group.create_task(lab.submit_all(specs, by=limited, components=components))
                for components in (lab.components, other)
            ]
            while await waiting_for_a_lock(lab) + backing_off(queues) < 2:
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


async def test_a_restart_adds_no_tokens(lab, limited):
    await submit(lab, limited, 10)
    assert kinds(await submit(lab, limited, 5, components=await another(lab))) == {
        "LimitExceeded": 5
    }


async def test_only_its_own_tenant_waits_for_a_locked_bucket(lab, limited, shared_dsn):
    await submit(lab, limited)
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    submitter = lab.components.submitter
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


async def test_a_submission_that_times_out_while_its_bucket_is_locked_is_not_stored(
    lab, limited, shared_dsn
):
    await submit(lab, limited)
    holder = await asyncpg.connect(shared_dsn, server_settings={"search_path": "duly"})
    submitter = lab.components.submitter
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
    submitter = lab.components.submitter
    assert len((await submitter.submit_batch(limited, [lab.spec()] * 6)).ids) == 6
    with pytest.raises(LimitExceeded) as caught:
        await submitter.submit_batch(limited, [lab.spec()] * 6)
    assert caught.value.retry_after == seconds(2)
    assert await lab.count("tasks") == await lab.count("live") == 6
    assert len((await submitter.submit_batch(limited, [lab.spec()] * 4)).ids) == 4
    assert await tokens(lab, limited) == 0


async def test_a_batch_larger_than_the_burst_is_invalid(lab, limited):
    with pytest.raises(Invalid, match="11 are more than the 10 that the plan"):
        await lab.components.submitter.submit_batch(limited, [lab.spec()] * 11)
    specs = [lab.spec(idempotency_key=str(number)) for number in range(11)]
    with pytest.raises(Invalid, match="11 are more than the 10 that the plan 'slow' takes at once"):
        await lab.components.submitter.submit_batch(limited, specs, key="b")
    assert await lab.count("tasks") == await lab.count("submissions") == 0


async def test_a_repeated_batch_is_free(lab, limited):
    submitter = lab.components.submitter
    ids = (await submitter.submit_batch(limited, [lab.spec()] * 10, key="b")).ids
    assert (await submitter.submit_batch(limited, [lab.spec()] * 10, key="b")).ids == ids
    assert await tokens(lab, limited) == 0


async def test_only_the_new_tasks_of_a_batch_are_charged(lab, limited):
    submitter = lab.components.submitter
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
    assert (await submitter.submit_batch(limited, specs)).ids
    assert await tokens(lab, limited) == 1


async def test_batches_and_singles_of_two_servers_share_one_bucket(lab, limited):
    other = await another(lab)
    await lab.submit_all([lab.spec()], by=lab.client, components=other)
    batches = [other.submitter.submit_batch(limited, [lab.spec()] * 3) for _ in range(3)]
    singles, *got = await asyncio.gather(submit(lab, limited, 30), *batches, return_exceptions=True)
    stored = kinds(singles)[True] + sum(
        len(one.ids) for one in got if not isinstance(one, DulyError)
    )
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
    await lab.components.replayer.replay(limited, task)
    assert await tokens(lab, limited) == 8
    await submit(lab, limited, 8)
    with pytest.raises(LimitExceeded):
        await lab.components.replayer.replay(limited, task)
    with pytest.raises(LimitExceeded):
        await (await another(lab)).replayer.replay(limited, task)
    assert await lab.count("tasks") == 10


async def test_a_change_of_the_plan_takes_effect_at_once(lab, limited):
    await submit(lab, limited, 4)
    await lab.conn.execute("update plans set burst = 5 where name = 'slow'")
    assert kinds(await submit(lab, limited, 9)) == {True: 5, "LimitExceeded": 4}
    await lab.conn.execute(
        "update plans set burst = 100, tasks_per_hour = 36000 where name = 'slow'"
    )
    # Before the cached bucket of the old plan expires.
    await lab.clock.move(seconds(0.5))
    raised = await lab.credential("slow")
    assert kinds(await submit(lab, raised, 15)) == {True: 5, "LimitExceeded": 10}


async def test_a_plan_without_its_former_rate_limits_nothing(lab, limited):
    await submit(lab, limited, 10)
    await lab.conn.execute("update tenants set plan = 'unlimited' where name = 'slow'")
    await lab.clock.move(seconds(0.5))
    got = await submit(lab, limited, 5, components=await another(lab))
    assert kinds(got) == {True: 5}
    other = await another(lab)
    assert len((await other.submitter.submit_batch(limited, [lab.spec()] * 9)).ids) == 9


async def test_an_empty_bucket_is_refused_from_the_cache_until_it_refills(lab, limited):
    await submit(lab, limited, 11)
    # The submission does not reach the commit queue, so no tick is needed for its result.
    with pytest.raises(LimitExceeded):
        await lab.components.submitter.submit(limited, lab.spec())
    with pytest.raises(LimitExceeded) as caught:
        await lab.components.submitter.submit_batch(limited, [lab.spec()] * 3)
    assert caught.value.retry_after == seconds(3)
    await lab.clock.move(seconds(1))
    assert kinds(await submit(lab, limited, 2)) == {True: 1, "LimitExceeded": 1}


WAYS_IN = {
    "a task": lambda lab, by, _: lab.components.submitter.submit(by, lab.spec()),
    "a batch": lambda lab, by, _: lab.components.submitter.submit_batch(by, [lab.spec()]),
    "a graph": lambda lab, by, _: lab.components.submitter.submit_graph(by, "g", [lab.spec()]),
    "a task that depends on another": lambda lab, by, ended: lab.components.submitter.submit(
        by, lab.spec(depends_on=[str(ended)])
    ),
    "a replay": lambda lab, by, ended: lab.components.replayer.replay(by, ended),
    "a replay with what came after": lambda lab, by, ended: lab.components.downstream.replay(
        by, ended
    ),
}


@pytest.mark.parametrize("way", WAYS_IN)
async def test_every_way_to_submit_is_refused_from_the_cache(lab, limited, way):
    (ended,) = await submit(lab, limited)
    await lab.components.canceller.cancel(limited, [ended.id])
    # The database would admit it, so a refusal comes from the cache.
    lab.components.rate_limiter.observe(
        {limited.tenant_id: Bucket(Rate(3600, 10), 0.0, lab.clock.now)}
    )
    with pytest.raises(LimitExceeded):
        await WAYS_IN[way](lab, limited, ended.id)
    assert (await tokens(lab, limited), await lab.count("tasks")) == (9, 1)


async def test_a_cached_bucket_expires_after_a_second(lab, limited):
    await submit(lab, limited)
    lab.components.rate_limiter.observe(
        {limited.tenant_id: Bucket(Rate(3600, 10), 0.0, lab.clock.now)}
    )
    await lab.clock.move(seconds(0.9))
    with pytest.raises(LimitExceeded):
        await lab.components.submitter.submit_batch(limited, [lab.spec()] * 5)
    await lab.clock.move(seconds(0.2))
    assert len((await lab.components.submitter.submit_batch(limited, [lab.spec()] * 5)).ids) == 5


def test_the_number_of_cached_buckets_is_limited(monkeypatch):
    monkeypatch.setattr(rate_limiter, "MAX_CACHED_BUCKETS", 3)
    limiter = rate_limiter.RateLimiter()
    for tenant in range(5):
        limiter.observe({tenant: Bucket(Rate(3600, 10), 10.0, None)})
    assert list(limiter._cache) == [2, 3, 4]


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


async def test_the_statement_and_the_policy_agree(lab, limited):
    rate = Rate(3600, 10)
    bucket = Bucket(rate, 10.0, lab.clock.now)
    for step, (wait, asked) in enumerate(
        [(0, 4), (0.25, 9), (1.5, 1), (0.333333, 3), (7.75, 6), (60, 2), (0.5, 20)]
    ):
        await lab.clock.move(seconds(wait))
        bucket = admission.refill(bucket, lab.clock.now)
        expected = min(asked, bucket.whole_tokens)
        got = kinds(await submit(lab, limited, asked, components=await another(lab)))
        assert got[True] == expected, step
        match admission.decide(bucket, expected):
            case admission.Admit(left):
                bucket = left
        found = await buckets.read(lab.conn, limited.tenant_id)
        assert admission.refill(found.bucket, found.now) == bucket


async def test_a_lost_response_is_not_charged_twice(lab, limited, standby):
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


async def test_a_deleted_bucket_is_created_again(lab, limited):
    await submit(lab, limited, 10)
    await lab.conn.execute("delete from buckets")
    got = await submit(lab, limited, 12, components=await another(lab))
    assert kinds(got) == {True: 10, "LimitExceeded": 2}
    assert not any(isinstance(one, Unavailable) for one in got)
