"""Retries as a task asked for them: delays, and exit codes that are not retried."""

from duly.model.requests.retry_request import RetryRequest
from duly.model.task import Outcome
from tests.server.lab import reason_of, seconds


async def test_a_failed_task_waits_as_long_as_it_asked_to(lab):
    node = await lab.node()
    ref = await lab.run(node, retry=RetryRequest(delay="100s", max_delay="100s"))
    assert await node.report(ref, Outcome.FAILED)
    assert (await lab.live(ref.task))["ready_at"] == lab.clock.now + seconds(100)


async def test_an_exit_code_that_is_not_retried_makes_a_dead_letter(lab):
    node = await lab.node()
    ref = await lab.run(node, retry=RetryRequest(no_retry_exit_codes=[3, 4]), max_attempts=5)
    assert await node.report(ref, Outcome.FAILED, exit_code=4)
    end = await lab.conn.fetchrow("select * from ends where task_id = $1", ref.task)
    assert end["status"] == "failed"
    reason = reason_of(end)
    assert (reason["code"], reason["details"]["given_up"]) == (
        "exit_code",
        "exit_code_not_retried",
    )


async def test_another_exit_code_is_retried(lab):
    node = await lab.node()
    ref = await lab.run(node, retry=RetryRequest(no_retry_exit_codes=[3, 4]))
    assert await node.report(ref, Outcome.FAILED, exit_code=5)
    assert await lab.status(ref.task) == "scheduled"


async def test_lost_attempts_of_a_task_with_its_own_backoff_are_returned(lab):
    node = await lab.node()
    ref = await lab.run(node, retry=RetryRequest(delay="100s"))
    await lab.rejoin(node)
    await lab.sweep()
    assert await lab.status(ref.task) == "waiting"
