"""The invariant of schedules detects synthetic violations, and accepts correct runs."""

import msgspec
import pytest

from tests.torture.evidence import CONVERGENCE_SECONDS, FaultInterval
from tests.torture.fire_times import times
from tests.torture.invariants.recurrence import NAME_PREFIX
from tests.torture.synthetic_schedule import (
    EVERY,
    ID,
    NOON,
    SyntheticSchedule,
    at,
    fired,
    time_text,
)


def test_a_schedule_that_fires_at_its_times_is_accepted():
    schedule = fired(10, 20, 30, 40, 50)
    schedule.keep()
    assert schedule.violations(phase="quiet") == []


def test_a_missing_fire_time_is_found():
    schedule = fired(10, 20, 40, 50)
    schedule.keep()
    assert schedule.violations() == [f"{time_text(30)} has passed without a record"]


def test_missed_fire_times_in_a_row_are_recorded_as_one():
    schedule = fired(10)
    schedule.miss(20, "made_up_for", last=30, times=2)
    schedule.done(schedule.fire(40))
    schedule.done(schedule.fire(50))
    schedule.keep()
    assert schedule.violations() == []
    schedule.occurrences[1] = msgspec.structs.replace(schedule.occurrences[1], times=3)
    assert schedule.violations() == [
        f"from {time_text(20)} to {time_text(30)} there are not 3 fire times"
    ]


def test_a_fire_time_with_two_tasks_is_found_by_the_records_and_by_the_tasks_alone():
    schedule = fired(10, 20)
    schedule.done(schedule.fire(20, task=999))
    schedule.keep(30)
    assert f"{time_text(20)} was recorded 2 times" in schedule.violations()
    schedule.occurrences.pop()
    alone = f"2 tasks '{NAME_PREFIX}1' have the fire time {time_text(20)}"
    assert any(alone in message for message in schedule.violations())


def test_a_fire_time_outside_the_recurrence_is_found():
    schedule = fired(10, 15)
    schedule.keep(20)
    assert schedule.violations() == [f"{time_text(15)} is not one of its fire times"]


def test_a_fire_time_beyond_the_end_is_found():
    schedule = fired(10, 20, 30, 40, 50, 60)
    schedule.keep()
    assert schedule.violations() == [f"{time_text(60)} is not one of its fire times"]


def test_a_task_that_is_not_stored_is_found():
    schedule = fired(10)
    del schedule.tasks[110]
    schedule.keep(20)
    assert f"the task 110 of {time_text(10)} does not exist" in schedule.violations()


def test_fire_times_after_the_removal_of_a_schedule_do_not_count():
    schedule = fired(10)
    schedule.remove(35, next_run=20)
    assert schedule.violations() == []
    schedule = fired(10)
    schedule.remove(35, next_run=40)
    assert len(schedule.violations()) == 2


def test_a_schedule_that_fires_after_it_was_removed_is_found():
    schedule = fired(10)
    schedule.remove(15, next_run=20)
    schedule.done(schedule.fire(20))
    assert schedule.violations() == [f"{time_text(20)} was claimed when the schedule did not exist"]


def paused_from_15_to_35() -> SyntheticSchedule:
    schedule = fired(10)
    schedule.step("update", 15, paused_at=at(15).isoformat())
    schedule.call("pause schedule", result={"schedule": str(ID)})
    return schedule


def resume(schedule: SyntheticSchedule) -> None:
    schedule.step("update", 35, paused_at=None)
    schedule.call("resume schedule", result={"schedule": str(ID)})
    schedule.keep(40)


def test_fire_times_during_a_pause_are_recorded_at_the_resume():
    schedule = paused_from_15_to_35()
    schedule.miss(20, "paused", last=30, times=2)
    resume(schedule)
    assert schedule.violations() == []
    schedule = paused_from_15_to_35()
    resume(schedule)
    assert len(schedule.violations()) == 2


def test_fire_times_after_the_final_pause_of_a_schedule_do_not_count():
    schedule = paused_from_15_to_35()
    schedule.keep(20, paused=True, due_ago=500)
    assert schedule.violations(phase="quiet") == []


def test_a_change_of_a_paused_schedule_records_the_missed_fire_times():
    schedule = paused_from_15_to_35()
    schedule.step("update", 25, recurrence={**EVERY, "every": "20s"})
    schedule.keep(40, paused=True)
    assert schedule.violations() == [f"{time_text(20)} has passed without a record"]


def test_a_schedule_that_fires_while_it_is_paused_is_found():
    schedule = paused_from_15_to_35()
    schedule.done(schedule.fire(20))
    schedule.miss(30, "paused")
    resume(schedule)
    assert schedule.violations() == [f"{time_text(20)} became the task 120 while it was paused"]


@pytest.mark.parametrize(
    ("reason", "policies"),
    [
        ("paused", {}),
        ("too_late", {"misfire": "once"}),
        ("overlap", {"overlap": "allow"}),
        ("made_up_for", {"misfire": "all"}),
        (None, {}),
    ],
)
def test_a_reason_that_contradicts_the_policies_is_found(reason, policies):
    schedule = fired(10, **policies)
    schedule.miss(20, reason)
    schedule.keep(30)
    [message] = schedule.violations()
    assert message.startswith(f"{time_text(20)} has the reason")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_fire_times_before_and_after_a_change_follow_the_respective_recurrence(is_recorded):
    schedule = fired(10)
    if is_recorded:
        schedule.miss(20, "changed")
    schedule.step("update", 25, recurrence={"cron": "*/15 * * * * *", "end_at": EVERY["end_at"]})
    schedule.call("change schedule", result={"schedule": str(ID)})
    schedule.done(schedule.fire(30))
    schedule.done(schedule.fire(45))
    schedule.keep()
    left_out = [] if is_recorded else [f"{time_text(20)} has passed without a record"]
    assert schedule.violations() == left_out


def test_a_fire_time_of_the_recurrence_before_a_change_is_found():
    schedule = fired(10, 20)
    schedule.step("update", 25, recurrence={"run_at": at(31).isoformat()})
    schedule.done(schedule.fire(30))
    schedule.done(schedule.fire(31))
    schedule.keep()
    assert schedule.violations() == [f"{time_text(30)} is not one of its fire times"]


def test_a_task_that_comes_late_or_early_is_found_unless_a_fault_excuses_it():
    schedule = SyntheticSchedule()
    schedule.done(schedule.fire(10, recorded=17))
    schedule.done(schedule.fire(20, recorded=19))
    schedule.keep(30)
    assert schedule.violations() == [
        f"the task 110 of {time_text(10)} was submitted 7.0 s late",
        f"the task 120 of {time_text(20)} was submitted 1.00 s early",
    ]
    schedule.faults = [FaultInterval(kind="database_clock", began=0, healed=schedule.now)]
    assert schedule.violations() == []


@pytest.mark.parametrize(("trouble", "violations"), [(1.5, 0), (0.5, 1)])
def test_the_delay_of_a_fire_time_counts_to_the_clock_reading_not_to_the_journal_entry(
    trouble, violations
):
    schedule = SyntheticSchedule()
    schedule.done(schedule.fire(10, recorded=16))
    schedule.keep(20)
    [place] = [n for n, step in enumerate(schedule.steps) if step.what == "occurrence"]
    claim = schedule.steps[place] = msgspec.structs.replace(schedule.steps[place], computed_ago=1.0)
    due = claim.boot - 1.0 - 6.0
    healed = due + trouble - CONVERGENCE_SECONDS
    schedule.faults = [FaultInterval(kind="partition", began=healed - 1, healed=healed)]
    assert len(schedule.violations()) == violations


def test_an_overdue_schedule_is_found_in_the_quiet_phase():
    schedule = fired(10)
    schedule.keep(20, due_ago=40)
    assert schedule.violations() == []
    assert schedule.violations(phase="quiet") == [f"has been due since {time_text(20)}"]


@pytest.mark.parametrize("op", ["create", "change", "pause", "remove"])
def test_an_acknowledged_operation_without_effect_is_found(op):
    schedule = SyntheticSchedule()
    schedule.keep(10)
    other = {"schedule": "71"} if op == "create" else {"schedule": str(ID)}
    schedule.call(f"{op} schedule", result=other)
    assert len(schedule.violations()) == 1


def test_an_overlapping_task_is_found_unless_the_policy_allows_it():
    for overlap, violations in (("skip", 1), ("allow", 0), ("queue", 0), ("cancel_other", 1)):
        schedule = SyntheticSchedule(overlap=overlap)
        first = schedule.fire(10)
        second = schedule.fire(20)
        schedule.done(first)
        schedule.done(second)
        schedule.keep(30)
        assert len(schedule.violations()) == violations, overlap


def test_a_task_that_ends_while_it_is_being_cancelled_is_accepted():
    schedule = SyntheticSchedule(overlap="cancel_other")
    first = schedule.fire(10)
    schedule.lease(first)
    schedule.run(first)
    second = schedule.fire(20)
    schedule.wait(-2.9)
    schedule.finish(first)
    schedule.keep(30)
    assert schedule.violations() == []
    schedule.steps[-1] = msgspec.structs.replace(schedule.steps[-1], boot=schedule.now + 2)
    assert schedule.violations() == [
        f"{time_text(20)} became the task {second}, and {first} was not cancelled for it"
    ]


def test_past_fire_times_do_not_recur_when_the_clock_is_set_back():
    schedule = fired(10)
    schedule.step("update", -30, paused_at=at(-30).isoformat())
    schedule.step("update", -28, paused_at=None)
    schedule.remove(-20, next_run=20)
    assert schedule.violations() == []


def test_queued_tasks_that_start_out_of_order_are_found():
    schedule = SyntheticSchedule(overlap="queue")
    first, second = schedule.fire(10), schedule.fire(20)
    schedule.lease(first)
    schedule.keep(30)
    assert schedule.violations() == []
    schedule.lease(second)
    assert schedule.violations() == [
        f"the task {second} was leased before the task {first} had ended"
    ]


def test_a_task_without_an_occurrence_is_found():
    schedule = fired(10)
    schedule.occurrences.clear()
    schedule.keep(10)
    assert any("no client submitted it" in message for message in schedule.violations())


def test_an_unsupported_recurrence_is_refused():
    with pytest.raises(ValueError, match="daily"):
        list(times({"daily": "06:30"}, NOON, NOON, NOON))
