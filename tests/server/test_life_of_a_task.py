import json

from duly import wire
from duly.model.task import Outcome, Usage
from tests.server.lab import seconds


async def test_a_task_goes_from_submit_to_done(lab):
    node = await lab.node()
    task = await lab.submit(name="hello", command=["echo", "hi"])
    assert await lab.status(task) == "waiting"

    ref = await lab.start(node, task)
    assert await lab.status(task) == "running"

    assert await node.report(ref, exit_code=0)
    assert await lab.status(task) == "done"
    assert await lab.attempts(task) == [(1, "succeeded")]
    assert await lab.live(task) is None


async def test_an_assignment_says_everything_that_the_agent_needs(lab):
    node = await lab.node()
    task = await lab.submit(
        command=["env"], env={"A": "1"}, execution_cap="90s", idempotency_key="k", tier="regular"
    )
    await lab.schedule()
    (start,) = (await node.poll()).start
    assert (start.ref.task, start.ref.attempt) == (task, 1)
    assert start.payload.command == ["env"]
    assert start.payload.env == {"A": "1"}
    assert start.resources.cpu_milli == 1000
    assert start.execution_cap == 90
    assert start.grace == lab.settings.execution.grace.total_seconds()
    assert start.idempotency_key == "k"


async def test_a_task_without_an_idempotency_key_gets_its_id_as_one(lab):
    node = await lab.node()
    task = await lab.submit()
    await lab.schedule()
    (start,) = (await node.poll()).start
    assert start.idempotency_key == str(task)


async def test_what_was_measured_and_said_is_kept(lab):
    node = await lab.node()
    ref = await lab.run(node)
    leased_at = lab.clock.now
    await lab.clock.move(seconds(10))
    await node.report(
        ref,
        exit_code=0,
        ran=4.0,
        ended_ago=1.0,
        usage=Usage(0.5, 12.0, 4.0),
        tail=b"hi\n",
        log_size=3,
        result=b'{"a": 1}',
    )
    row = await lab.conn.fetchrow("select * from attempts where task_id = $1", ref.task)
    assert (row["node_id"], row["token"]) == (node.id, ref.token)
    assert (row["leased_at"], row["started_at"]) == (leased_at, leased_at + seconds(5))
    assert row["finished_at"] == leased_at + seconds(9)
    assert (row["cpu_seconds"], row["peak_memory_mb"], row["wall_seconds"]) == (0.5, 12.0, 4.0)
    assert (row["log_tail"], row["log_size"]) == (b"hi\n", 3)
    end = await lab.end(ref.task)
    assert end["result"] == '{"a": 1}'
    assert (end["attempt"], end["failures"], end["losses"]) == (1, 0, 0)
    assert end["node_id"] == node.id


async def test_no_attempt_is_said_to_have_begun_before_it_was_leased(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.report(ref, ran=3600.0, ended_ago=3600.0)
    row = await lab.conn.fetchrow("select * from attempts where task_id = $1", ref.task)
    assert row["leased_at"] == row["started_at"] == row["finished_at"]


async def test_what_is_no_json_is_no_result_and_the_task_says_so(lab):
    node = await lab.node()
    results = [b"{", b"\xff", b"NaN", b"[" * 100_000, b'"' + b"x" * 300_000 + b'"']
    refs = [await lab.run(node) for _ in range(5)]
    for ref, result in zip(refs, results, strict=True):
        assert await node.report(ref, result=result)
        end = await lab.end(ref.task)
        assert (end["status"], end["result"]) == ("done", None)
        assert json.loads(end["reason"])["code"] == "result_not_kept"


async def test_any_json_of_an_allowed_size_is_a_result(lab):
    node = await lab.node()
    results = [b"null", rb'"\u0000"', b"[" * 500 + b"]" * 500, '{"ü": "\U0001f600"}'.encode()]
    refs = [await lab.run(node) for _ in results]
    for ref, result in zip(refs, results, strict=True):
        assert await node.report(ref, result=result)
        assert (await lab.end(ref.task))["result"] == result.decode()


async def test_every_attempt_has_a_larger_token_than_those_before_it(lab):
    node = await lab.node()
    first = await lab.run(node)
    await node.report(first, Outcome.PREEMPTED)
    second = await lab.start(node, first.task)
    third = await lab.run(node)
    assert first.token < second.token < third.token
    assert second == wire.AttemptRef(first.task, 2, second.token)


async def test_many_reports_are_answered_in_their_order(lab):
    node = await lab.node()
    refs = [await lab.run(node) for _ in range(4)]
    stale = wire.AttemptRef(refs[1].task, 7, refs[1].token)
    told = [refs[3], stale, refs[0], refs[2]]
    reports = [wire.AttemptReport(ref=ref, outcome=Outcome.SUCCEEDED) for ref in told]
    assert await lab.components.queue_manager.report(node.id, reports) == [True, False, True, True]
    assert [await lab.status(ref.task) for ref in refs] == ["done", "running", "done", "done"]
