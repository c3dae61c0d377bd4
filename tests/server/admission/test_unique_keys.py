import asyncio
import hashlib

import msgspec
import pytest

from duly.errors import Conflict, DulyError, Invalid
from duly.model.task import Outcome, Unique
from duly.server.admission import idempotency
from tests.server.lab import answers


def unique(key="k", **more):
    return {"key": key, **more}


def spec(lab, **fields):
    """Return the spec of a request; `unique` as it is in the request."""
    asked = fields.pop("unique", None)
    whole = lab.spec(**fields)
    if asked is None:
        return whole
    return msgspec.structs.replace(whole, unique=msgspec.convert(asked, Unique))


async def submit(lab, *asked, by=None, components=None, **fields):
    specs = [spec(lab, unique=one, **fields) for one in asked]
    return await lab.submit_all(specs, by=by, components=components)


async def another(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    return other


async def test_one_live_task_holds_a_key_and_a_conflict_names_it(lab):
    (first,) = await submit(lab, unique())
    (second,) = await submit(lab, unique())
    assert isinstance(second, Conflict)
    assert second.message == f"Task {first.id} has the unique key 'k' already."
    assert second.details == {"task": str(first.id), "unique_key": "k"}
    assert await lab.count("tasks") == await lab.count("live") == 1


async def test_on_conflict_return_gives_the_task_that_holds_the_key(lab):
    (first,) = await submit(lab, unique())
    (second,) = await submit(lab, unique(on_conflict="return"), name="another body")
    assert (second.id, second.created) == (first.id, False)


async def test_one_of_many_concurrent_submissions_is_admitted(lab):
    got = await submit(lab, *[unique()] * 20)
    assert sum(not isinstance(one, DulyError) for one in got) == 1
    assert sum(isinstance(one, Conflict) for one in got) == 19
    assert await lab.count("live") == 1


async def test_one_of_many_concurrent_submissions_on_two_servers_is_admitted(lab):
    other = await another(lab)
    for turn in range(10):
        asked = [unique(f"k{turn}", on_conflict="return")] * 5
        ours, theirs = await asyncio.gather(
            submit(lab, *asked), submit(lab, *asked, components=other)
        )
        assert len({one.id for one in ours + theirs}) == 1
        assert sum(one.created for one in ours + theirs) == 1
    assert await lab.count("tasks") == await lab.count("live") == 10


async def test_the_end_of_a_task_releases_its_key(lab):
    node = await lab.node()
    (first,) = await submit(lab, unique())
    ref = await lab.start(node, first.id)
    assert isinstance((await submit(lab, unique()))[0], Conflict)
    await node.report(ref)
    (next_one,) = await submit(lab, unique())
    assert next_one.created
    await lab.components.canceller.cancel(lab.client, [next_one.id])
    assert (await submit(lab, unique()))[0].created


async def test_a_key_held_while_waiting_is_released_by_the_first_start(lab):
    node = await lab.node()
    asked = unique(**{"while": "waiting"})
    (first,) = await submit(lab, asked)
    assert isinstance((await submit(lab, asked))[0], Conflict)
    ref = await lab.start(node, first.id)
    (second,) = await submit(lab, asked)
    assert second.created
    # It waits for another attempt, and does not get the key back.
    await node.report(ref, Outcome.FAILED)
    assert await lab.status(first.id) == "scheduled"
    assert await lab.status(second.id) == "waiting"


async def test_keys_of_tenants_are_independent(lab):
    await submit(lab, unique())
    assert (await submit(lab, unique(), by=lab.stranger))[0].created


async def test_other_tasks_of_the_same_commit_are_not_affected(lab):
    await submit(lab, unique())
    got = await lab.submit_all([lab.spec(), spec(lab, unique=unique()), lab.spec()])
    assert [isinstance(one, Conflict) for one in got] == [False, True, False]


async def test_a_duplicate_is_not_a_conflict_with_its_own_task(lab):
    (first,) = await submit(lab, unique(), idempotency_key="i")
    (again,) = await submit(lab, unique(), idempotency_key="i")
    assert (again.id, again.created) == (first.id, False)
    (refused,) = await submit(lab, unique(), idempotency_key="other")
    assert isinstance(refused, Conflict)
    assert await lab.count("submissions") == 1


async def test_a_batch_is_all_or_none(lab):
    (first,) = await submit(lab, unique())
    submitter = lab.components.submitter
    with pytest.raises(Conflict, match=f"Task {first.id} has the unique key 'k'"):
        await submitter.submit_batch(lab.client, [lab.spec(), spec(lab, unique=unique())])
    assert await lab.count("tasks") == 1
    given = spec(lab, unique=unique(on_conflict="return"))
    ids = (await submitter.submit_batch(lab.client, [lab.spec(), given])).ids
    assert ids[1] == first.id
    assert await lab.count("tasks") == 2


async def test_the_tasks_of_one_key_are_named_by_their_place_in_the_request(lab):
    """Which is not the order in which they are stored."""
    specs = [
        spec(lab, ref="last", depends_on=["first"], unique=unique()),
        spec(lab, ref="between"),
        spec(lab, ref="first", unique=unique()),
    ]
    with pytest.raises(Invalid, match=r"tasks\[0\] has the unique key 'k', too") as refused:
        await lab.components.submitter.submit_batch(lab.client, specs)
    assert refused.value.field == "tasks[2].unique.key"


async def test_a_batch_with_one_key_twice_names_both_tasks(lab):
    specs = [lab.spec(), spec(lab, unique=unique()), spec(lab, unique=unique())]
    with pytest.raises(Invalid, match=r"tasks\[1\] has the unique key 'k', too"):
        await lab.components.submitter.submit_batch(lab.client, specs)


async def test_an_update_can_take_and_release_a_key(lab):
    (holder,) = await submit(lab, unique())
    task = await lab.submit()
    updater = lab.components.updater
    with pytest.raises(Conflict, match=f"Task {holder.id} has the unique key"):
        await updater.update(lab.client, task, {"unique": unique()})
    await updater.update(lab.client, holder.id, {"unique": None})
    await updater.update(lab.client, task, {"unique": unique()})
    await updater.update(lab.client, task, {"priority": 3})
    (refused,) = await submit(lab, unique())
    assert refused.details["task"] == str(task)


async def test_a_replay_takes_the_key_again(lab):
    node = await lab.node()
    (first,) = await submit(lab, unique())
    await node.report(await lab.start(node, first.id))
    new = await lab.components.replayer.replay(lab.client, first.id)
    with pytest.raises(Conflict, match=f"Task {new} has the unique key"):
        await lab.components.replayer.replay(lab.client, first.id)
    assert await lab.count("tasks") == 2


async def test_one_of_a_concurrent_replay_and_submission_is_admitted(lab):
    node = await lab.node()
    (first,) = await submit(lab, unique())
    await node.report(await lab.start(node, first.id))
    submitter = lab.components.submitter
    asked = [lab.components.replayer.replay(lab.client, first.id) for _ in range(3)]
    asked += [submitter.submit(lab.client, spec(lab, unique=unique())) for _ in range(3)]
    got = await answers(submitter, asked)
    assert sum(isinstance(one, Conflict) for one in got) == 5
    assert await lab.count("live") == 1


async def test_the_hash_of_a_task_without_a_unique_key_is_that_of_earlier_versions(lab):
    plain = lab.spec(idempotency_key="k", env={"A": ',"unique":null'})
    fields = msgspec.to_builtins(plain) | {"idempotency_key": None}
    younger_fields = ("unique", "concurrency", "ref", "depends_on", "queue", "user_id", "tenant_id")
    for younger in younger_fields:
        del fields[younger]
    for granted in ("log_limit", "result_limit"):
        fields["payload"].pop(granted, None)
    before = hashlib.sha256(msgspec.json.encode(fields)).digest()
    assert idempotency.hash_spec(plain, lab.client.plan) == before
    other = spec(lab, unique=unique(), env={"A": ',"unique":null'})
    assert idempotency.hash_spec(other, lab.client.plan) != before
