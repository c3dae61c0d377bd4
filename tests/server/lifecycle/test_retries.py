import pytest

from duly.config import RetrySettings, Settings
from duly.model.task import Outcome, Reason
from tests.server.lab import reason_of, seconds


@pytest.fixture
def settings():
    return Settings(retries=RetrySettings(base_delay=seconds(8), max_losses=2))


async def lose(lab, node):
    """Start the agent anew, so that what it ran is lost."""
    node = await lab.rejoin(node)
    await lab.sweep()
    return node


async def wait_out(lab, task):
    """Let the time of a task come, however long its backoff."""
    await lab.clock.set((await lab.live(task))["ready_at"])
    await lab.sweep()


async def test_a_failure_is_retried_after_a_backoff(lab):
    node = await lab.node()
    ref = await lab.run(node)
    assert await node.report(ref, Outcome.FAILED)
    row = await lab.live(ref.task)
    assert row["status"] == "scheduled"
    assert lab.clock.now < row["ready_at"] <= lab.clock.now + seconds(8)
    assert row["start_by"] == (row["ready_at"] + row["delay_tolerance"]).replace(microsecond=0)
    assert reason_of(row)["code"] == "exit_code"
    assert row["node_id"] is row["token"] is row["leased_at"] is None


async def test_a_retry_is_released_at_the_end_of_its_backoff_and_not_before(lab):
    node = await lab.node()
    ref = await lab.run(node)
    await node.report(ref, Outcome.FAILED)
    ready_at = (await lab.live(ref.task))["ready_at"]
    await lab.clock.set(ready_at - seconds(0.001))
    await lab.sweep()
    assert await lab.status(ref.task) == "scheduled"
    await lab.clock.set(ready_at)
    await lab.sweep()
    assert await lab.status(ref.task) == "waiting"
    await node.heartbeat()
    assert (await lab.start(node, ref.task)).attempt == 2


async def test_the_queue_manager_wakes_when_the_next_task_is_due(lab):
    manager = lab.components.queue_manager
    await lab.sweep()
    assert manager.pause() == seconds(1)
    await lab.submit(run_at=lab.clock.now + seconds(0.25))
    await lab.sweep()
    assert manager.pause() == seconds(0.25)


async def test_locked_due_tasks_do_not_cause_a_busy_loop(lab):
    task = await lab.submit(run_at=lab.clock.now + seconds(5))
    await lab.clock.move(seconds(6))
    async with lab.database.transaction() as conn:
        await conn.fetch("select from live where id = $1 for update", task)
        await lab.sweep()
        assert await lab.status(task) == "scheduled"
        assert lab.components.queue_manager.pause() > seconds(0)
    await lab.sweep()
    assert await lab.status(task) == "waiting"


async def test_failures_and_losses_are_counted_separately(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=3)
    await node.report(ref, Outcome.FAILED)
    await wait_out(lab, ref.task)
    node = await lab.rejoin(node)
    await lab.start(node, ref.task)
    await lose(lab, node)
    assert await lab.tally(ref.task) == (1, 1)
    assert (await lab.live(ref.task))["attempt"] == 2
    assert await lab.attempts(ref.task) == [(1, "failed"), (2, "lost")]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CAPPED, Outcome.OVERUSED])
async def test_an_outcome_caused_by_the_task_counts_as_a_failure(lab, outcome):
    node = await lab.node()
    ref = await lab.run(node)
    assert await node.report(ref, outcome)
    assert await lab.status(ref.task) == "scheduled"
    assert await lab.tally(ref.task) == (1, 0)
    assert await lab.attempts(ref.task) == [(1, outcome)]


@pytest.mark.parametrize("outcome", [Outcome.PREEMPTED, Outcome.EXPIRED])
async def test_an_outcome_not_caused_by_the_task_costs_no_attempt_and_no_rank(lab, outcome):
    node = await lab.node()
    ref = await lab.run(node)
    start_by = (await lab.live(ref.task))["start_by"]
    await lab.clock.move(seconds(3))
    assert await node.report(ref, outcome)
    row = await lab.live(ref.task)
    assert (row["status"], row["start_by"]) == ("waiting", start_by)
    assert await lab.tally(ref.task) == (0, 0)
    assert await lab.attempts(ref.task) == [(1, outcome)]


async def test_after_its_last_attempt_a_task_is_a_dead_letter_with_its_last_error(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=2)
    await node.report(ref, Outcome.FAILED)
    await wait_out(lab, ref.task)
    await node.heartbeat()
    ref = await lab.start(node, ref.task)
    oops = Reason("exit_code", "Exit code 7.", {"exit_code": 7})
    await node.report(ref, Outcome.FAILED, exit_code=7, reason=oops, tail=b"oops\n", log_size=5)
    end = await lab.end(ref.task)
    assert (end["status"], end["outcome"], end["exit_code"]) == ("failed", "failed", 7)
    assert reason_of(end) == {
        "code": "exit_code",
        "message": "Exit code 7. That was the last of 2 attempts.",
        "details": {"exit_code": 7, "given_up": "attempts_exhausted"},
    }
    assert await lab.dead_letters() == {ref.task: "exit_code"}
    assert await lab.attempts(ref.task) == [(1, "failed"), (2, "failed")]
    assert await lab.live(ref.task) is None


async def test_a_dead_letter_without_a_last_error_has_a_reason(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=1)
    await node.report(ref, Outcome.CAPPED)
    assert reason_of(await lab.end(ref.task))["code"] == "attempts_exhausted"
    assert await lab.dead_letters() == {ref.task: "attempts_exhausted"}


async def test_a_task_that_must_not_start_twice_fails_when_it_is_lost(lab):
    node = await lab.node()
    ref = await lab.run(node, on_lost="fail")
    await lose(lab, node)
    assert await lab.status(ref.task) == "failed"
    assert await lab.dead_letters() == {ref.task: "lost"}
    assert await lab.tally(ref.task) == (0, 1)


async def test_a_task_that_must_not_start_twice_is_retried_when_it_fails(lab):
    node = await lab.node()
    ref = await lab.run(node, on_lost="fail")
    await node.report(ref, Outcome.FAILED)
    assert await lab.status(ref.task) == "scheduled"


async def test_a_task_that_outlives_too_many_nodes_is_given_up(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=1)
    node = await lose(lab, node)
    assert await lab.status(ref.task) == "waiting"
    await lab.start(node, ref.task)
    await lose(lab, node)
    assert await lab.status(ref.task) == "failed"
    assert await lab.dead_letters() == {ref.task: "lost_too_often"}
    assert await lab.attempts(ref.task) == [(1, "lost"), (2, "lost")]


async def test_a_retry_goes_to_another_node_when_one_fits(lab):
    nodes = [await lab.node(), await lab.node()]
    ref = await lab.run(nodes[0])
    await nodes[0].report(ref, Outcome.PREEMPTED)
    await lab.schedule()
    assert await lab.run_on(nodes[1]) == {ref.task}


async def test_a_retry_goes_to_the_same_node_when_no_other_fits(lab):
    small, large = await lab.node(cpu=1), await lab.node(cpu=4)
    ref = await lab.run(large, cpu=2)
    await large.report(ref, Outcome.PREEMPTED)
    await lab.schedule()
    assert await lab.run_on(small) == set()
    assert await lab.run_on(large) == {ref.task}


async def test_a_task_with_run_at_is_ready_at_that_time(lab):
    node = await lab.node()
    later = lab.clock.now + seconds(5)
    task = await lab.submit(run_at=later, delay_tolerance="60s")
    row = await lab.live(task)
    assert (row["status"], row["ready_at"]) == ("scheduled", later)
    assert row["start_by"] == later + seconds(60)
    await lab.sweep()
    await lab.schedule()
    assert await node.starts() == []
    await lab.clock.set(later)
    await lab.sweep()
    assert (await lab.start(node, task)).task == task


async def test_a_time_in_the_past_is_now(lab):
    task = await lab.submit(run_at=lab.clock.now - seconds(3600))
    row = await lab.live(task)
    assert (row["status"], row["ready_at"]) == ("waiting", lab.clock.now)


async def test_attempt_numbers_increase_whatever_the_outcome(lab):
    node = await lab.node()
    ref = await lab.run(node, max_attempts=9)
    refs = [ref]

    async def start_again():
        await wait_out(lab, ref.task)
        await node.heartbeat()
        refs.append(await lab.start(node, ref.task))

    for outcome in (Outcome.FAILED, Outcome.EXPIRED, Outcome.CAPPED, Outcome.PREEMPTED):
        await node.report(refs[-1], outcome)
        await start_again()
    node = await lose(lab, node)
    await start_again()
    await lab.components.pauser.pause(lab.client, [ref.task])
    await node.report(refs[-1], Outcome.FAILED)
    assert await lab.status(ref.task) == "paused"
    await lab.components.pauser.resume(lab.client, [ref.task])
    await start_again()
    # By it a task is told apart from its former selves: `DULY_FENCING_TOKEN`.
    assert [ref.attempt for ref in refs] == [1, 2, 3, 4, 5, 6, 7]
    assert [ref.token for ref in refs] == sorted({ref.token for ref in refs})
