import asyncio
import json

import pytest

from duly.errors import NotLeading
from duly.server.recurrence import timekeeper
from tests.server.calendar import Calendar
from tests.server.lab import seconds


@pytest.fixture
def calendar(lab):
    return Calendar(lab)


def believe(components, term):
    """Let a server be sure that it leads."""
    components.cluster_manager._term = term
    components.cluster_manager._trusted_until = float("inf")


async def test_a_fire_time_becomes_a_task_when_it_comes_and_not_before(lab, calendar):
    schedule = await calendar.create(overlap="allow", task={"name": "nightly"})
    await calendar.go(0.99)
    assert await calendar.ran(schedule) == []
    await calendar.go(1)
    await calendar.go(1.5)
    await calendar.go(2)
    assert await calendar.ran(schedule) == [1, 2]
    assert await calendar.next_run(schedule) == 3
    first, second = await calendar.tasks(schedule)
    row = await lab.conn.fetchrow("select * from tasks where id = $1", first)
    assert (row["name"], row["run_at"], row["user_id"]) == (
        "nightly",
        calendar.at(1),
        lab.client.user_id,
    )
    assert await lab.status(first) == await lab.status(second) == "waiting"


async def test_the_task_of_a_fire_time_runs_like_any_other(lab, calendar):
    schedule = await calendar.create()
    node = await calendar.node()
    await calendar.go(1)
    (task,) = await calendar.tasks(schedule)
    assert await node.report(await lab.start(node, task))
    assert await lab.status(task) == "done"


async def test_a_shape_created_by_a_fire_time_is_cached_for_submissions(lab, calendar):
    fields = {"resources": {"cpu": 0.625}, "queue": "off_peak"}
    await calendar.create(task=fields)
    submitter, spec = lab.components.submitter, lab.spec(cpu=0.625, queue="off_peak")
    assert submitter._shapes.get(spec) is None
    await calendar.go(1)
    shape = await lab.conn.fetchval("select shape_id from live")
    assert submitter._shapes.get(spec) == shape


async def test_the_timekeeper_sleeps_until_the_next_schedule_is_due(lab, calendar):
    keeper = lab.components.timekeeper
    await keeper.tick()
    assert keeper.pause() == keeper.interval
    await calendar.create(run_at=(calendar.start + seconds(0.25)).isoformat())
    await keeper.tick()
    assert keeper.pause() == seconds(0.25)
    await calendar.go(0.25 / 60)
    assert keeper.pause() == keeper.interval


async def test_two_overlapping_leaders_store_one_task(lab, calendar):
    schedule = await calendar.create()
    await lab.clock.set(calendar.at(1))
    await lab.components.cluster_manager.tick()
    other = lab.server()
    await other.cluster_manager.tick()
    # Even if the term let both of them: the schedule is locked, and the fire time claimed.
    believe(other, lab.components.cluster_manager.term)
    await asyncio.gather(lab.components.timekeeper.tick(), other.timekeeper.tick())
    assert await calendar.ran(schedule) == [1]
    assert await lab.count("tasks") == 1


async def test_a_server_whose_term_is_over_fires_nothing(lab, calendar):
    schedule = await calendar.create()
    stale = lab.components.cluster_manager.term
    await lab.clock.move(seconds(30))
    other = lab.server()
    await other.cluster_manager.tick()
    assert other.cluster_manager.term is not None
    believe(lab.components, stale)
    await lab.clock.set(calendar.at(1))
    with pytest.raises(NotLeading):
        await lab.components.timekeeper.tick()
    assert await calendar.ran(schedule) == []


async def test_a_fire_time_that_was_claimed_is_not_run_again(lab, calendar):
    schedule = await calendar.create(overlap="allow")
    await calendar.go(1)
    await lab.conn.execute("update schedules set next_run_at = $1", calendar.at(1))
    await calendar.go(2)
    assert await calendar.ran(schedule) == [1, 2]
    assert await lab.count("tasks") == 2


async def test_a_fire_time_that_was_missed_is_not_run_again(lab, calendar):
    schedule = await calendar.create(overlap="skip")
    await calendar.go(1)
    await calendar.go(2)
    await lab.conn.execute(
        "update schedules set overlap = 'allow', next_run_at = $1", calendar.at(2)
    )
    await calendar.go(2.5)
    assert await calendar.ran(schedule) == [1]
    assert await calendar.missed(schedule) == [(2, 1, "overlap")]


async def test_many_schedules_due_at_once_all_fire(lab, calendar):
    for _ in range(7):
        await calendar.create()
    lab.components.timekeeper._batch_limit = 3
    await calendar.go(1)
    assert await lab.count("tasks") == 7


async def test_the_fire_times_of_one_transaction_are_bounded(lab, calendar, monkeypatch):
    monkeypatch.setattr(timekeeper, "MAX_TASKS_PER_TRANSACTION", 5)
    made = [await calendar.create(misfire="all", overlap="allow") for _ in range(3)]
    await lab.clock.set(calendar.at(4))
    await lab.components.cluster_manager.tick()
    term = lab.components.cluster_manager.term
    fired = await lab.components.timekeeper._fire(term, set())
    assert (fired.schedules, len(fired.result.tasks)) == (2, 8)
    await lab.components.timekeeper.tick()
    assert [await calendar.ran(one) for one in made] == [[1, 2, 3, 4]] * 3


@pytest.mark.parametrize(
    ("misfire", "ran", "missed"),
    [
        ("skip", [], [(1, 5, "too_late")]),
        ("once", [5], [(1, 4, "made_up_for")]),
        ("all", [1, 2, 3, 4, 5], []),
    ],
)
async def test_missed_fire_times_follow_the_misfire_policy(calendar, misfire, ran, missed):
    schedule = await calendar.create(misfire=misfire, overlap="allow", every="1m", jitter="10s")
    await calendar.lab.conn.execute("update schedules set next_run_at = $1", calendar.at(1))
    await calendar.lab.conn.execute("update schedules set anchor = $1", calendar.at(0))
    keeper = calendar.lab.components.timekeeper
    keeper._grace = seconds(10)
    await calendar.go(5.5)
    assert await calendar.ran(schedule) == ran
    assert await calendar.missed(schedule) == missed
    assert await calendar.next_run(schedule) == 6


async def test_jitter_moves_the_start_and_not_the_fire_time(lab, calendar):
    schedule = await calendar.create(jitter="30s")
    await calendar.go(1)
    (task,) = await calendar.tasks(schedule)
    live = await lab.live(task)
    assert await calendar.ran(schedule) == [1]
    assert calendar.at(1) < live["ready_at"] < calendar.at(1.5)
    assert live["status"] == "scheduled"


async def test_a_schedule_that_has_fired_for_the_last_time_stays(lab, calendar):
    once = await calendar.create(run_at=calendar.at(1).isoformat())
    await calendar.go(1)
    assert await calendar.ran(once) == [1]
    assert await calendar.next_run(once) is None
    await calendar.go(100)
    assert await calendar.ran(once) == [1]


async def test_an_occurrence_is_kept_while_its_task_is_live(lab, calendar):
    schedule = await calendar.create(overlap="cancel_other")
    await calendar.go(1)
    await calendar.go(2)
    await lab.conn.execute("update occurrences set recorded_at = recorded_at - interval '1 y'")
    await lab.components.retention.tick()
    assert await calendar.ran(schedule) == [2]


async def test_an_unreadable_schedule_blocks_no_other(lab, calendar, monkeypatch):
    odd = await calendar.create(overlap="allow", timezone="Europe/Berlin")
    good = await calendar.create(overlap="allow")
    # As written by a server that knows a newer zone than this one does.
    await _rewrite(lab, odd, "recurrence", {"timezone": "Mars/Olympus"})
    await calendar.go(1)
    assert (await calendar.ran(odd), await calendar.ran(good)) == ([], [1])
    assert lab.components.timekeeper.pause() == lab.components.timekeeper.interval
    await _rewrite(lab, odd, "recurrence", {"timezone": "Europe/Berlin"})
    monkeypatch.setattr(timekeeper, "UNREADABLE_RETRY_SECONDS", 0.0)
    await calendar.go(1.9)
    assert (await calendar.ran(odd), await calendar.ran(good)) == ([1], [1])


async def test_an_unreadable_task_is_recorded_as_missed_and_blocks_no_other(lab, calendar):
    odd, good = [await calendar.create() for _ in range(2)]
    await _rewrite(lab, odd, "task", {"colour": "blue"})
    await calendar.go(1)
    assert (await calendar.ran(odd), await calendar.ran(good)) == ([], [1])
    assert await calendar.missed(odd) == [(1, 1, "not_submittable")]


async def _rewrite(lab, schedule, column, fields):
    """Put fields into what a schedule keeps, as no request to this server could."""
    await lab.conn.execute(
        f"update schedules set {column} = {column}::jsonb || $2::jsonb where id = $1",
        schedule,
        json.dumps(fields),
    )
