"""Tasks that wait past their delay tolerance are overdue: marked once, or cancelled if they ask."""

import pytest

from duly import telemetry
from duly.errors import NotLeading
from duly.model.requests.retry_request import RetryRequest
from duly.model.task import Outcome
from duly.server.lifecycle import overdue_detector
from tests.server.lab import Lab, between_placing_and_leasing, reason_of, seconds


async def detect(lab: Lab, *, passes: int = 1) -> None:
    """Let the leader make complete passes over the waiting tasks."""
    detector = lab.components.overdue_detector
    await lab.components.cluster_manager.tick()
    for _ in range(passes):
        await detector.tick()
        while detector._pass is not None:
            await detector.tick()


async def marks(lab: Lab) -> list[int]:
    """Return the task of every event that says so."""
    rows = await lab.conn.fetch("select task_id from events where kind = 'overdue' order by 1")
    return [row["task_id"] for row in rows]


def counted(queue: str = "delayable", plan: str = "unlimited") -> float:
    labels = {"queue": queue, "plan": plan}
    return telemetry.REGISTRY.get_sample_value("duly_tasks_overdue_total", labels) or 0.0


async def test_a_task_that_waits_past_its_tolerance_is_marked_once_and_counted_once(lab):
    before = counted()
    task = await lab.submit(delay_tolerance="10s")
    await lab.submit(delay_tolerance="1h")
    await lab.clock.move(seconds(9))
    await detect(lab)
    assert await marks(lab) == []
    await lab.clock.move(seconds(2))
    await detect(lab, passes=3)
    assert await marks(lab) == [task]
    assert counted() == before + 1
    assert await lab.status(task) == "waiting"


async def test_the_next_leader_does_not_mark_it_again(lab):
    task = await lab.submit(delay_tolerance="1s")
    await lab.clock.move(seconds(2))
    await detect(lab)
    lab.components = lab.server()
    await lab.clock.move(seconds(60))
    await detect(lab)
    assert await marks(lab) == [task]


async def test_a_server_that_no_longer_leads_marks_nothing(lab):
    await lab.submit(delay_tolerance="1s")
    await lab.clock.move(seconds(2))
    await lab.conn.execute("update terms set term = term + 1")
    with pytest.raises(NotLeading):
        await lab.components.overdue_detector.tick()
    assert await marks(lab) == []


async def test_tasks_that_do_not_wait_are_not_overdue(lab):
    node = await lab.node()
    started = await lab.run(node, delay_tolerance="10s")
    await lab.submit(delay_tolerance="10s", run_at=lab.clock.now + seconds(3600), cpu=64)
    paused = await lab.submit(delay_tolerance="10s", cpu=64)
    await lab.components.pauser.pause(lab.client, [paused])
    await lab.clock.move(seconds(20))
    await detect(lab)
    assert await marks(lab) == []
    assert await lab.status(started.task) == "running"


async def test_each_wait_of_a_task_is_overdue_at_most_once(lab):
    node = await lab.node()
    task = await lab.submit(delay_tolerance="10s", retry=RetryRequest(delay=0))
    await lab.clock.move(seconds(11))
    await detect(lab)
    ref = await lab.start(node, task)
    await lab.clock.move(seconds(1))
    await node.report(ref, Outcome.FAILED)
    await lab.clock.move(seconds(5))
    await lab.sweep()
    await detect(lab)
    assert await marks(lab) == [task]
    await lab.clock.move(seconds(60))
    await lab.sweep()
    await lab.clock.move(seconds(11))
    await detect(lab, passes=2)
    assert await marks(lab) == [task, task]


async def test_a_lost_task_has_its_whole_tolerance_again_before_it_is_overdue(lab):
    node = await lab.node()
    ref = await lab.run(node, delay_tolerance="10s")
    await lab.silence(seconds(20))
    assert await lab.status(ref.task) == "waiting"
    row = await lab.live(ref.task)
    assert row["start_by"] < row["ready_at"]
    await detect(lab)
    assert await marks(lab) == []
    await lab.clock.move(overdue_detector.FULL_PASS_INTERVAL)
    await detect(lab)
    assert await marks(lab) == [ref.task]


async def test_a_page_is_bounded_and_a_pass_finds_all(lab, monkeypatch):
    monkeypatch.setattr(overdue_detector, "TASKS_PER_PAGE", 3)
    specs = [
        lab.spec(delay_tolerance="1s", priority=number % 2, cpu=1 + number % 3)
        for number in range(11)
    ]
    tasks = [int(answer.id) for answer in await lab.submit_all(specs)]
    tasks += [int(answer.id) for answer in await lab.submit_all(specs[:4], by=lab.stranger)]
    await lab.clock.move(seconds(2))
    await lab.components.cluster_manager.tick()
    await lab.components.overdue_detector.tick()
    assert len(await marks(lab)) == 3
    await detect(lab)
    assert await marks(lab) == sorted(tasks)


async def test_a_task_is_found_when_its_tolerance_is_shortened_to_the_past(lab):
    task = await lab.submit(delay_tolerance="1h")
    await lab.clock.move(seconds(300))
    await detect(lab)
    await lab.components.updater.update(lab.client, task, {"delay_tolerance": "10s"})
    await lab.clock.move(overdue_detector.FULL_PASS_INTERVAL)
    await detect(lab)
    assert await marks(lab) == [task]


async def test_on_overdue_cancel_ends_it_and_says_what_is_short_and_when_to_try_again(lab):
    node = await lab.node(cpu=4)
    await lab.run(node, cpu=3, execution_cap="100s")
    task = await lab.submit(delay_tolerance="10s", on_overdue="cancel", cpu=2)
    after = await lab.components.submitter.submit_batch(
        lab.client, [lab.spec(depends_on=[str(task)])]
    )
    await lab.schedule()
    await lab.clock.move(seconds(11))
    before = counted()
    await detect(lab)
    end = await lab.end(task)
    assert end["status"] == "cancelled"
    reason = reason_of(end)
    assert reason["code"] == "overdue"
    assert reason["message"].endswith(
        "within its delay tolerance of 10 s: no node had 2 CPUs free. Try again in 1 min 29 s."
    )
    assert reason["details"]["retry_after"] == 89
    assert reason["details"]["kinds"] == ["cpu"]
    assert await marks(lab) == [task]
    assert counted() == before + 1
    await lab.sweep()
    assert reason_of(await lab.end(after.ids[0]))["code"] == "upstream_failed"


@pytest.mark.parametrize(
    ("expected", "bound", "retry_after"),
    [("30 seconds", "64 seconds", 19), ("5 seconds", "64 seconds", 53), ("5 s", "8 s", 86_389)],
)
async def test_the_time_to_try_again_goes_by_expected_run_times_until_they_have_passed(
    lab, expected, bound, retry_after
):
    node = await lab.node(cpu=4)
    runs = await lab.run(node, cpu=3, execution_cap="24h")
    await lab.conn.execute(
        "update live set expected_run_time = $2::text::interval, "
        "run_time_bound = $3::text::interval where id = $1",
        runs.task,
        expected,
        bound,
    )
    task = await lab.submit(delay_tolerance="10s", on_overdue="cancel", cpu=2)
    await lab.schedule()
    await lab.clock.move(seconds(11))
    await detect(lab)
    assert reason_of(await lab.end(task))["details"]["retry_after"] == retry_after


async def test_without_anything_known_the_time_to_try_again_is_the_tolerance(lab):
    task = await lab.submit(delay_tolerance="10s", on_overdue="cancel")
    await lab.clock.move(seconds(11))
    await detect(lab)
    assert reason_of(await lab.end(task))["details"]["retry_after"] == 10


async def test_a_task_that_a_round_leases_first_is_not_cancelled(lab):
    node = await lab.node()
    task = await lab.submit(delay_tolerance="1s", on_overdue="cancel")
    await lab.clock.move(seconds(2))
    detector = lab.components.overdue_detector
    await lab.components.cluster_manager.tick()
    found = await detector._read_page()
    assert [one.id for one in found] == [task]
    await lab.schedule()
    await detector._handle(lab.components.cluster_manager.term, found)
    assert await lab.status(task) == "running"
    assert [ref.task for ref in await node.starts()] == [task]
    assert await marks(lab) == []


async def test_a_task_that_is_cancelled_first_is_not_leased(lab):
    await lab.node()
    task = await lab.submit(delay_tolerance="1s", on_overdue="cancel")
    await lab.clock.move(seconds(2))
    await between_placing_and_leasing(lab, detect(lab))
    assert await lab.status(task) == "cancelled"
    assert await lab.attempts(task) == []


async def test_one_that_got_more_time_meanwhile_is_not_cancelled(lab):
    task = await lab.submit(delay_tolerance="1s", on_overdue="cancel")
    await lab.clock.move(seconds(2))
    detector = lab.components.overdue_detector
    found = await detector._read_page()
    await lab.components.updater.update(lab.client, task, {"delay_tolerance": "1h"})
    await detector._handle(lab.components.cluster_manager.term, found)
    assert await lab.status(task) == "waiting"
    assert await marks(lab) == []
