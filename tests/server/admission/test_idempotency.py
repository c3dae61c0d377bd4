import asyncio

from duly.errors import DulyError, KeyReused
from duly.model.task import Outcome
from tests.server.lab import answers


async def test_fifty_concurrent_submissions_with_one_key_are_one_task(lab):
    got = await lab.submit_all([lab.spec(idempotency_key="k")] * 50)
    assert len({answer.id for answer in got}) == 1
    assert [answer.created for answer in got].count(True) == 1
    assert await lab.count("tasks") == await lab.count("live") == 1


async def test_two_servers_with_one_key_admit_one_task(lab):
    other = lab.server()
    await other.cluster_manager.tick()
    spec = lab.spec(idempotency_key="k")
    ours, theirs = await asyncio.gather(
        lab.submit_all([spec] * 10), lab.submit_all([spec] * 10, components=other)
    )
    assert len({answer.id for answer in ours + theirs}) == 1
    assert [answer.created for answer in ours + theirs].count(True) == 1
    assert await lab.count("tasks") == 1


async def test_a_repeated_key_returns_its_task_whatever_its_status(lab):
    node = await lab.node()
    spec = lab.spec(idempotency_key="k")
    (first,) = await lab.submit_all([spec])
    ref = await lab.start(node, first.id)
    assert [answer.id for answer in await lab.submit_all([spec])] == [first.id]
    await node.report(ref)
    (again,) = await lab.submit_all([spec])
    assert (again.id, again.created) == (first.id, False)


async def test_a_key_with_another_body_is_refused_and_names_its_task(lab):
    task = await lab.submit(idempotency_key="k", name="one")
    (answer,) = await lab.submit_all([lab.spec(idempotency_key="k", name="two")])
    assert isinstance(answer, KeyReused)
    assert answer.details == {"task": str(task)}
    assert await lab.count("tasks") == 1


async def test_one_of_two_concurrent_bodies_under_one_key_is_admitted(lab):
    specs = [lab.spec(idempotency_key="k", priority=number % 2) for number in range(10)]
    got = await lab.submit_all(specs)
    refused = [answer for answer in got if isinstance(answer, DulyError)]
    admitted = [answer for answer in got if not isinstance(answer, DulyError)]
    assert {type(answer) for answer in refused} == {KeyReused}
    assert (len(refused), len(admitted)) == (5, 5)
    assert len({answer.id for answer in admitted}) == 1


async def test_keys_of_tenants_are_independent(lab):
    mine = await lab.submit(idempotency_key="k")
    theirs = await lab.submit(idempotency_key="k", name="other", by=lab.stranger)
    assert mine != theirs


async def test_used_and_new_keys_in_one_group_get_their_own_results(lab):
    known = await lab.submit(idempotency_key="known")
    specs = [lab.spec(idempotency_key=key) for key in ("new", "known")]
    new, same, _ = await lab.submit_all([*specs, lab.spec()])
    assert (new.created, same.created, same.id) == (True, False, known)


async def test_a_batch_is_stored_in_order(lab):
    specs = [lab.spec(name=f"task {number}") for number in range(5)]
    ids = (await lab.components.submitter.submit_batch(lab.client, specs)).ids
    names = dict(await lab.conn.fetch("select id, name from tasks"))
    assert [names[task] for task in ids] == [spec.name for spec in specs]


async def test_a_batch_is_stored_whole_or_not_at_all(lab):
    await lab.submit(idempotency_key="taken")
    submitter = lab.components.submitter
    bad = lab.spec(idempotency_key="taken", name="other")
    (answer,) = await answers(
        submitter, [submitter.submit_batch(lab.client, [lab.spec(), bad], key="batch")]
    )
    assert isinstance(answer, KeyReused)
    assert await lab.count("tasks") == await lab.count("submissions") == 1


async def test_a_repeated_batch_has_the_same_ids(lab):
    submitter = lab.components.submitter
    specs = [lab.spec(name=f"task {number}") for number in range(3)]
    ids = (await submitter.submit_batch(lab.client, specs, key="batch")).ids
    assert (await submitter.submit_batch(lab.client, specs, key="batch")).ids == ids
    assert await lab.count("tasks") == 3


async def test_ten_concurrent_copies_of_a_batch_are_stored_once(lab):
    submitter = lab.components.submitter
    specs = [lab.spec(), lab.spec(idempotency_key="k")]
    got = await asyncio.gather(
        *(submitter.submit_batch(lab.client, specs, key="batch") for _ in range(10))
    )
    assert len({tuple(batch.ids) for batch in got}) == 1
    assert await lab.count("tasks") == 2


async def test_the_key_of_another_batch_is_refused(lab):
    submitter = lab.components.submitter
    await submitter.submit_batch(lab.client, [lab.spec()], key="batch")
    for other in ([lab.spec(), lab.spec()], [lab.spec(name="other")]):
        (answer,) = await answers(
            submitter, [submitter.submit_batch(lab.client, other, key="batch")]
        )
        assert isinstance(answer, KeyReused)
    assert await lab.count("tasks") == 1


async def test_the_key_of_a_batch_is_refused_for_a_task(lab):
    submitter = lab.components.submitter
    spec = lab.spec()
    await submitter.submit_batch(lab.client, [spec], key="k")
    (answer,) = await lab.submit_all([lab.spec(idempotency_key="k")])
    assert isinstance(answer, KeyReused)
    await lab.submit(idempotency_key="single")
    (answer,) = await answers(submitter, [submitter.submit_batch(lab.client, [spec], key="single")])
    assert isinstance(answer, KeyReused)


async def test_a_batch_returns_the_ids_of_its_duplicates(lab):
    known = await lab.submit(idempotency_key="known")
    submitter = lab.components.submitter
    specs = [lab.spec(), lab.spec(idempotency_key="known"), lab.spec(idempotency_key="new")]
    ids = (await submitter.submit_batch(lab.client, specs, key="batch")).ids
    assert ids[1] == known
    assert (await submitter.submit_batch(lab.client, specs, key="batch")).ids == ids
    assert await lab.count("tasks") == 3


async def test_one_key_twice_in_a_batch_is_one_task(lab):
    spec = lab.spec(idempotency_key="k")
    first, second = (await lab.components.submitter.submit_batch(lab.client, [spec, spec])).ids
    assert first == second
    assert await lab.count("tasks") == 1


async def test_a_replay_has_no_idempotency_key(lab):
    node = await lab.node()
    ref = await lab.run(node, idempotency_key="k")
    await node.report(ref, Outcome.SUCCEEDED)
    replay = await lab.components.replayer.replay(lab.client, ref.task)
    assert replay != ref.task
    assert await lab.submit(idempotency_key="k") == ref.task
