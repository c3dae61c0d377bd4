"""Operations of users on schedules; none loses or doubles a fire time."""

import asyncio

import msgspec
import pytest

from duly.errors import Conflict, Invalid, LimitExceeded, NotFound
from duly.model.requests.schedule_request import ScheduleRequest
from duly.model.requests.task_request import TaskRequest
from tests.server.calendar import Calendar
from tests.server.lab import seconds


@pytest.fixture
def calendar(lab):
    return Calendar(lab)


@pytest.fixture
def schedules(lab):
    return lab.components.schedules


@pytest.fixture(autouse=True)
async def written_before(lab):
    """Where the audit log ends, of which nothing can be removed: ids come again in each test."""
    lab.written = await lab.conn.fetchval("select coalesce(max(id), 0) from audit_log")


async def actions(lab, schedule):
    rows = await lab.conn.fetch(
        "select action from audit_log where target = $1 and id > $2 order by id",
        str(schedule),
        lab.written,
    )
    return [row["action"].removeprefix("schedule.") for row in rows]


async def test_a_schedule_that_never_fires_is_refused(lab, calendar):
    for fields in (
        {"cron": "0 0 31 2 *"},
        {"run_at": calendar.at(0).isoformat()},
        {"every": "1h", "end_at": calendar.at(30).isoformat()},
    ):
        with pytest.raises(Invalid, match="would never fire"):
            await calendar.create(**fields)
    assert await lab.count("schedules") == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"task": {"execution_cap": "never"}}, "task.execution_cap"),
        ({"task": {"idempotency_key": "k"}}, "task.idempotency_key"),
        ({"task": {"run_at": "2027-01-01T00:00:00Z"}}, "task.run_at"),
        ({"task": {"depends_on": ["7251039274172410"]}}, "task.depends_on"),
        ({"overlap": "never"}, "overlap"),
        ({"misfire": "never"}, "misfire"),
        ({"name": " "}, "name"),
    ],
)
async def test_an_invalid_field_is_refused_by_name(calendar, fields, field):
    with pytest.raises(Invalid) as refused:
        await calendar.create(**fields)
    assert refused.value.field == field


async def test_an_interval_without_a_start_counts_from_its_creation(calendar):
    schedule = await calendar.create(every="90s")
    assert await calendar.next_run(schedule) == 1.5


@pytest.mark.parametrize(("limit", "number"), [(1, "1 schedule"), (2, "2 schedules")])
async def test_a_plan_limits_the_number_of_schedules(lab, calendar, limit, number):
    lab.client = msgspec.structs.replace(
        lab.client, plan=msgspec.structs.replace(lab.client.plan, max_schedules=limit)
    )
    (first, *_) = [await calendar.create() for _ in range(limit)]
    with pytest.raises(LimitExceeded, match=rf" allows {number}\. Remove one "):
        await calendar.create()
    await lab.components.schedules.remove(lab.client, first)
    await calendar.create()


async def test_two_servers_together_add_no_more_than_the_plan_allows(lab, calendar):
    plan = msgspec.structs.replace(lab.client.plan, max_schedules=2)
    caller = msgspec.structs.replace(lab.client, plan=plan)
    other = lab.server()
    await other.cluster_manager.tick()
    asked = msgspec.convert({"every": "1h", "task": {"command": ["true"]}}, ScheduleRequest)
    got = await asyncio.gather(
        *(components.schedules.create(caller, asked) for components in (lab.components, other) * 4),
        return_exceptions=True,
    )
    assert sum(isinstance(one, LimitExceeded) for one in got) == 6
    assert await lab.count("schedules") == 2


async def test_schedules_of_other_tenants_are_out_of_reach(lab, calendar, schedules):
    theirs = await calendar.create(by=lab.stranger)
    for change in (
        schedules.update(lab.client, theirs, {"name": "mine"}),
        schedules.pause(lab.client, theirs),
        schedules.resume(lab.client, theirs),
        schedules.remove(lab.client, theirs),
        schedules.run(lab.client, theirs),
        schedules.backfill(lab.client, theirs, calendar.at(0), calendar.at(0)),
    ):
        with pytest.raises(NotFound):
            await change
    assert await actions(lab, theirs) == ["create"]


async def test_a_change_takes_effect_from_the_next_fire_time_on(lab, calendar, schedules):
    schedule = await calendar.create(overlap="allow")
    await calendar.go(1)
    await schedules.update(
        lab.client, schedule, {"task": {"command": ["false"]}, "every": "10m", "start_at": None}
    )
    assert await calendar.next_run(schedule) == 11
    await calendar.go(11)
    assert await calendar.ran(schedule) == [1, 11]
    payload = await lab.conn.fetchval(
        "select payload from tasks where id = $1", (await calendar.tasks(schedule))[-1]
    )
    assert msgspec.json.decode(payload)["command"] == ["false"]
    assert await actions(lab, schedule) == ["create", "update"]


async def test_the_next_run_can_be_moved_and_the_recurrence_continues_after_it(
    lab, calendar, schedules
):
    schedule = await calendar.create(overlap="allow")
    await schedules.update(lab.client, schedule, {"next_run_at": calendar.at(2.5).isoformat()})
    await calendar.go(2.4)
    assert await calendar.ran(schedule) == []
    await calendar.go(2.5)
    await calendar.go(3)
    assert await calendar.ran(schedule) == [2.5, 3]
    with pytest.raises(Invalid):
        await schedules.update(lab.client, schedule, {"next_run_at": calendar.at(3).isoformat()})
    await schedules.update(lab.client, schedule, {"next_run_at": calendar.at(9.5).isoformat()})
    await schedules.update(lab.client, schedule, {"next_run_at": None})
    assert await calendar.next_run(schedule) == 4


async def test_a_one_off_that_is_moved_runs_once(lab, calendar, schedules):
    schedule = await calendar.create(run_at=calendar.at(9).isoformat(), overlap="allow")
    await schedules.update(lab.client, schedule, {"next_run_at": calendar.at(2).isoformat()})
    await calendar.go(2)
    await calendar.go(9)
    assert await calendar.ran(schedule) == [2]
    assert await calendar.next_run(schedule) is None


async def test_the_next_run_must_lie_between_start_and_end(lab, calendar, schedules):
    bounds = {"start_at": calendar.at(3).isoformat(), "end_at": calendar.at(5).isoformat()}
    schedule = await calendar.create(every="1m", **bounds)
    for minute, word in ((2.5, "start_at"), (5.5, "end_at")):
        with pytest.raises(Invalid, match=word):
            await schedules.update(
                lab.client, schedule, {"next_run_at": calendar.at(minute).isoformat()}
            )
    await schedules.update(lab.client, schedule, {"next_run_at": calendar.at(5).isoformat()})
    assert await calendar.next_run(schedule) == 5


async def test_fire_times_skipped_by_a_change_are_recorded(lab, calendar, schedules):
    schedule = await calendar.create()
    await lab.clock.set(calendar.at(2))
    await schedules.update(lab.client, schedule, {"every": "10m"})
    assert await calendar.missed(schedule) == [(1, 2, "changed")]
    await calendar.go(2)
    assert await calendar.ran(schedule) == []


async def test_a_paused_schedule_resumes_with_its_next_fire_time(lab, calendar, schedules):
    schedule = await calendar.create(overlap="allow")
    await calendar.create(name="one that fires meanwhile")
    await calendar.go(1)
    await schedules.pause(lab.client, schedule)
    await schedules.pause(lab.client, schedule)
    await calendar.go(4.5)
    assert await calendar.ran(schedule) == [1]
    await schedules.resume(lab.client, schedule)
    await schedules.resume(lab.client, schedule)
    await calendar.go(5)
    assert await calendar.ran(schedule) == [1, 5]
    assert await calendar.missed(schedule) == [(2, 3, "paused")]
    assert await actions(lab, schedule) == ["create", "pause", "resume"]


async def test_a_change_of_a_paused_schedule_records_skipped_fire_times(lab, calendar, schedules):
    schedule = await calendar.create(overlap="allow")
    await schedules.pause(lab.client, schedule)
    await lab.clock.set(calendar.at(2))
    await schedules.update(lab.client, schedule, {"every": "10m"})
    assert await calendar.missed(schedule) == [(1, 2, "paused")]


async def test_a_schedule_can_be_run_manually_even_while_paused(lab, calendar, schedules):
    schedule = await calendar.create(jitter="10m", overlap="skip")
    await schedules.pause(lab.client, schedule)
    made = await schedules.run(lab.client, schedule)
    assert await lab.status(made.id) == "waiting"
    assert await calendar.ran(schedule) == [0]
    await schedules.resume(lab.client, schedule)
    await calendar.go(1)
    assert await calendar.missed(schedule) == [(1, 1, "overlap")]


async def test_two_manual_runs_at_one_instant_run_once(lab, calendar, schedules):
    schedule = await calendar.create(overlap="allow")
    made = await schedules.run(lab.client, schedule)
    with pytest.raises(Conflict):
        await schedules.run(lab.client, schedule)
    assert await calendar.tasks(schedule) == [made.id]


async def test_past_fire_times_are_backfilled_once(lab, calendar, schedules):
    schedule = await calendar.create(misfire="skip", overlap="allow")
    await calendar.go(1)
    await calendar.go(5.5)
    assert await calendar.missed(schedule) == [(2, 3, "too_late")]
    start, end = calendar.at(0), calendar.at(4)
    assert len(await schedules.backfill(lab.client, schedule, start, end)) == 3
    assert await calendar.ran(schedule) == [1, 2, 3, 4, 5]
    with pytest.raises(Conflict):
        await schedules.backfill(lab.client, schedule, start, end)
    assert await lab.count("tasks") == 5


async def test_a_backfilled_fire_time_hides_none_of_the_missed_ones(lab, calendar, schedules):
    schedule = await calendar.create(misfire="skip", overlap="allow")
    await lab.clock.set(calendar.at(6.5))
    await lab.components.cluster_manager.tick()
    await schedules.backfill(lab.client, schedule, calendar.at(0), calendar.at(2))
    await schedules.backfill(lab.client, schedule, calendar.at(4), calendar.at(4))
    await lab.components.timekeeper.tick()
    assert await calendar.ran(schedule) == [1, 2, 4, 6]
    assert await calendar.missed(schedule) == [(3, 3, "too_late")]


async def test_a_backfill_is_bounded_and_all_or_none(lab, calendar, schedules):
    schedule = await calendar.create()
    await calendar.go(1)
    for start, end, field in (
        (calendar.at(1), calendar.at(0), "end_at"),
        (calendar.at(0), calendar.at(2), "end_at"),
        (calendar.at(-31 * 1440), calendar.at(0), "start_at"),
    ):
        with pytest.raises(Invalid) as refused:
            await schedules.backfill(lab.client, schedule, start, end)
        assert refused.value.field == field
    seconds_long = await calendar.create(
        every="1s", start_at=(calendar.start - seconds(7200)).isoformat()
    )
    with pytest.raises(Invalid, match="1000 fire times"):
        await schedules.backfill(lab.client, seconds_long, calendar.at(-100), calendar.at(0))
    assert len(await calendar.tasks(seconds_long)) == 0


async def test_tasks_of_a_removed_schedule_stay(lab, calendar, schedules):
    schedule = await calendar.create()
    await calendar.go(1)
    await schedules.remove(lab.client, schedule)
    await calendar.go(2)
    assert await calendar.ran(schedule) == [1]
    assert len(await calendar.tasks(schedule)) == 1
    with pytest.raises(NotFound):
        await schedules.remove(lab.client, schedule)


async def test_a_fire_time_due_at_the_removal_is_recorded(lab, calendar, schedules):
    due, paused, early = [await calendar.create(overlap="allow") for _ in range(3)]
    await schedules.pause(lab.client, paused)
    await schedules.remove(lab.client, early)
    await calendar.go(1)
    await lab.clock.set(calendar.at(3.5))
    for schedule in (due, paused):
        await schedules.remove(lab.client, schedule)
    assert await calendar.ran(due) == [1]
    assert await calendar.missed(due) == [(2, 2, "removed")]
    assert await calendar.missed(paused) == [(1, 3, "paused")]
    assert await calendar.missed(early) == []


async def test_a_change_to_overlap_skip_counts_occurrences_that_are_open(lab, calendar, schedules):
    schedule = await calendar.create(overlap="allow")
    await calendar.go(1)
    await schedules.update(lab.client, schedule, {"overlap": "skip"})
    await calendar.go(2)
    assert await calendar.missed(schedule) == [(2, 1, "overlap")]


async def test_a_change_is_validated_like_a_new_schedule(lab, calendar, schedules):
    schedule = await calendar.create()
    for changes, field in (
        ({"task": None}, "task"),
        ({"task": {"command": []}}, "task.command"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"timezone": "Nowhere"}, "timezone"),
        ({"every": None}, "cron"),
    ):
        with pytest.raises(Invalid) as refused:
            await schedules.update(lab.client, schedule, changes)
        assert refused.value.field == field
    await schedules.update(lab.client, schedule, {"monthly": "31@06:30", "short_month": "skip"})
    await schedules.update(lab.client, schedule, {"daily": "06:30"})
    assert await lab.conn.fetchval("select recurrence -> 'daily' from schedules") == '"06:30"'


async def test_a_request_is_decoded_whole():
    asked = msgspec.convert({"task": {"command": ["true"]}, "daily": "06:30"}, ScheduleRequest)
    assert asked.task == TaskRequest(command=["true"])
