import asyncio

import pytest

from duly.errors import Conflict, NotFound
from duly.model.task import Outcome
from tests.server.lab import seconds


async def replay(lab, task, by=None, **options):
    return await lab.components.replayer.replay(by or lab.client, task, **options)


async def fail(lab, **fields):
    """Bring a task to the dead letters."""
    node = await lab.node()
    ref = await lab.run(node, max_attempts=1, **fields)
    await node.report(ref, Outcome.FAILED)
    return ref.task


async def test_a_done_task_is_replayed_as_a_new_one_that_is_linked_to_it(lab):
    node = await lab.node()
    ref = await lab.run(
        node, command=["x"], name="n", labels={"a": "b"}, run_at=lab.clock.now, tier="regular"
    )
    await node.report(ref)
    new = await replay(lab, ref.task)
    columns = "name, command, tier, labels, shape_id, replay_of, run_at"
    old_row, new_row = [
        await lab.conn.fetchrow(
            f"select {columns.replace('command', 'payload::text')} from tasks where id = $1", task
        )
        for task in (ref.task, new)
    ]
    assert new_row["replay_of"] == ref.task
    assert new_row["run_at"] is None
    assert tuple(new_row)[:5] == tuple(old_row)[:5]
    assert await lab.status(ref.task) == "done"
    assert (await lab.start(node, new)).attempt == 1


async def test_a_live_task_cannot_be_replayed(lab):
    node = await lab.node()
    tasks = [
        (await lab.run(node)).task,
        await lab.submit(),
        await lab.submit(run_at=lab.clock.now + seconds(60)),
    ]
    for task in tasks:
        with pytest.raises(Conflict):
            await replay(lab, task)
    assert await lab.count("tasks") == 3


async def test_unknown_tasks_and_tasks_of_other_tenants_cannot_be_replayed(lab):
    task = await fail(lab)
    with pytest.raises(NotFound):
        await replay(lab, task, by=lab.stranger)
    with pytest.raises(NotFound):
        await replay(lab, task, by=lab.stranger, dead=True)
    with pytest.raises(NotFound):
        await replay(lab, 12345)
    assert await lab.dead_letters() == {task: "exit_code"}


async def test_a_replayed_task_is_no_longer_a_dead_letter_and_its_history_stays(lab):
    task = await fail(lab)
    new = await replay(lab, task, dead=True)
    assert await lab.dead_letters() == {}
    assert await lab.status(task) == "failed"
    assert await lab.status(new) == "waiting"
    with pytest.raises(NotFound):
        await replay(lab, task, dead=True)
    assert await lab.count("tasks") == 2


async def test_a_dead_letter_that_is_replayed_ten_times_at_once_is_replayed_once(lab):
    task = await fail(lab)
    got = await asyncio.gather(
        *(replay(lab, task, dead=True) for _ in range(10)), return_exceptions=True
    )
    assert len([outcome for outcome in got if isinstance(outcome, int)]) == 1
    assert {type(outcome) for outcome in got if not isinstance(outcome, int)} == {NotFound}
    assert await lab.count("tasks") == 2


async def test_a_replay_of_a_failed_task_takes_it_out_of_the_dead_letters(lab):
    task = await fail(lab)
    await replay(lab, task)
    assert await lab.dead_letters() == {}


async def test_a_done_task_is_no_dead_letter(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.report(ref)
    with pytest.raises(NotFound):
        await replay(lab, ref.task, dead=True)


async def test_a_dropped_dead_letter_is_gone_and_its_history_stays(lab):
    task = await fail(lab)
    drop = lab.components.replayer.drop_dead_letter
    with pytest.raises(NotFound):
        await drop(lab.stranger, task)
    await drop(lab.client, task)
    with pytest.raises(NotFound):
        await drop(lab.client, task)
    assert await lab.dead_letters() == {}
    assert await lab.status(task) == "failed"
