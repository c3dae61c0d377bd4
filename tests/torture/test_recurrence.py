"""The invariant about schedules rejects what is made up to break it, and nothing else."""

import msgspec
import pytest

from tests.torture.evidence import CONVERGED, FaultInterval
from tests.torture.fire_times import times
from tests.torture.invariants.recurrence import MARK
from tests.torture.synthetic_schedule import EVERY, ID, ZERO, SyntheticSchedule, at, fired, told


def test_a_schedule_that_fires_at_its_times_is_accepted():
    plan = fired(10, 20, 30, 40, 50)
    plan.stay()
    assert plan.wrong(phase="quiet") == []


def test_a_fire_time_that_is_left_out_is_found():
    plan = fired(10, 20, 40, 50)
    plan.stay()
    assert plan.wrong() == [f"{told(30)} came, and nothing says what became of it"]


def test_missed_fire_times_in_a_row_are_recorded_as_one():
    plan = fired(10)
    plan.miss(20, "made_up_for", last=30, times=2)
    plan.done(plan.fire(40))
    plan.done(plan.fire(50))
    plan.stay()
    assert plan.wrong() == []
    plan.occurrences[1] = msgspec.structs.replace(plan.occurrences[1], times=3)
    assert plan.wrong() == [f"from {told(20)} to {told(30)} there are not 3 fire times"]


def test_a_fire_time_with_two_tasks_is_found_by_what_is_recorded_and_by_the_tasks_alone():
    plan = fired(10, 20)
    plan.done(plan.fire(20, task=999))
    plan.stay(30)
    assert f"{told(20)} was seen to 2 times" in plan.wrong()
    plan.occurrences.pop()
    alone = f"2 tasks '{MARK}1' were to run at {told(20)}"
    assert any(alone in one for one in plan.wrong())


def test_a_fire_time_that_the_rule_does_not_have_is_found():
    plan = fired(10, 15)
    plan.stay(20)
    assert plan.wrong() == [f"{told(15)} is none of its fire times"]


def test_a_fire_time_beyond_the_end_is_found():
    plan = fired(10, 20, 30, 40, 50, 60)
    plan.stay()
    assert plan.wrong() == [f"{told(60)} is none of its fire times"]


def test_a_task_that_is_not_stored_is_found():
    plan = fired(10)
    del plan.tasks[110]
    plan.stay(20)
    assert f"the task 110 of {told(10)} does not exist" in plan.wrong()


def test_a_removed_schedule_is_asked_only_for_what_it_had_come_to():
    plan = fired(10)
    plan.remove(35, next_run=20)
    assert plan.wrong() == []
    plan = fired(10)
    plan.remove(35, next_run=40)
    assert len(plan.wrong()) == 2


def test_a_schedule_that_fires_after_it_was_removed_is_found():
    plan = fired(10)
    plan.remove(15, next_run=20)
    plan.done(plan.fire(20))
    assert plan.wrong() == [f"{told(20)} was seen to when there was no such schedule"]


def paused_from_15_to_35() -> SyntheticSchedule:
    plan = fired(10)
    plan.step("update", 15, paused_at=at(15).isoformat())
    plan.call("pause schedule", result={"schedule": str(ID)})
    return plan


def resume(plan: SyntheticSchedule) -> None:
    plan.step("update", 35, paused_at=None)
    plan.call("resume schedule", result={"schedule": str(ID)})
    plan.stay(40)


def test_what_passes_while_a_schedule_is_paused_is_recorded_when_it_is_resumed():
    plan = paused_from_15_to_35()
    plan.miss(20, "paused", last=30, times=2)
    resume(plan)
    assert plan.wrong() == []
    plan = paused_from_15_to_35()
    resume(plan)
    assert len(plan.wrong()) == 2


def test_a_schedule_that_is_paused_for_good_is_asked_for_nothing_more():
    plan = paused_from_15_to_35()
    plan.stay(20, paused=True, due_ago=500)
    assert plan.wrong(phase="quiet") == []


def test_a_change_of_what_is_paused_passes_over_nothing_in_silence():
    plan = paused_from_15_to_35()
    plan.step("update", 25, recurrence={**EVERY, "every": "20s"})
    plan.stay(40, paused=True)
    assert plan.wrong() == [f"{told(20)} came, and nothing says what became of it"]


def test_a_schedule_that_fires_while_it_is_paused_is_found():
    plan = paused_from_15_to_35()
    plan.done(plan.fire(20))
    plan.miss(30, "paused")
    resume(plan)
    assert plan.wrong() == [f"{told(20)} became the task 120, and it was paused"]


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
def test_a_reason_that_cannot_be_is_found(reason, policies):
    plan = fired(10, **policies)
    plan.miss(20, reason)
    plan.stay(30)
    [message] = plan.wrong()
    assert message.startswith(f"{told(20)} became nothing because of")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_change_takes_the_times_of_the_rule_before_and_after_it(is_recorded):
    plan = fired(10)
    if is_recorded:
        plan.miss(20, "changed")
    plan.step("update", 25, recurrence={"cron": "*/15 * * * * *", "end_at": EVERY["end_at"]})
    plan.call("change schedule", result={"schedule": str(ID)})
    plan.done(plan.fire(30))
    plan.done(plan.fire(45))
    plan.stay()
    left_out = [] if is_recorded else [f"{told(20)} came, and nothing says what became of it"]
    assert plan.wrong() == left_out


def test_a_task_of_the_rule_before_the_change_is_found():
    plan = fired(10, 20)
    plan.step("update", 25, recurrence={"run_at": at(31).isoformat()})
    plan.done(plan.fire(30))
    plan.done(plan.fire(31))
    plan.stay()
    assert plan.wrong() == [f"{told(30)} is none of its fire times"]


def test_a_task_that_comes_late_or_early_is_found_unless_something_was_wrong():
    plan = SyntheticSchedule()
    plan.done(plan.fire(10, recorded=17))
    plan.done(plan.fire(20, recorded=19))
    plan.stay(30)
    assert plan.wrong() == [
        f"the task 110 of {told(10)} was submitted 7.0 s late",
        f"the task 120 of {told(20)} was submitted 1.00 s before",
    ]
    plan.troubles = [FaultInterval(kind="database_clock", began=0, healed=plan.now)]
    assert plan.wrong() == []


@pytest.mark.parametrize(("trouble", "violations"), [(1.5, 0), (0.5, 1)])
def test_the_delay_of_a_fire_time_is_seen_where_it_was_and_not_where_it_was_journaled(
    trouble, violations
):
    plan = SyntheticSchedule()
    plan.done(plan.fire(10, recorded=16))
    plan.stay(20)
    [place] = [n for n, step in enumerate(plan.steps) if step.what == "occurrence"]
    claim = plan.steps[place] = msgspec.structs.replace(plan.steps[place], computed_ago=1.0)
    due = claim.boot - 1.0 - 6.0
    healed = due + trouble - CONVERGED
    plan.troubles = [FaultInterval(kind="partition", began=healed - 1, healed=healed)]
    assert len(plan.wrong()) == violations


def test_a_schedule_that_nobody_sees_to_is_found_once_all_is_quiet():
    plan = fired(10)
    plan.stay(20, due_ago=40)
    assert plan.wrong() == []
    assert plan.wrong(phase="quiet") == [f"it is due since {told(20)}, and nobody sees to it"]


@pytest.mark.parametrize("op", ["create", "change", "pause", "remove"])
def test_what_was_acknowledged_and_not_done_is_found(op):
    plan = SyntheticSchedule()
    plan.stay(10)
    other = {"schedule": "71"} if op == "create" else {"schedule": str(ID)}
    plan.call(f"{op} schedule", result=other)
    assert len(plan.wrong()) == 1


def test_a_task_beside_an_earlier_one_is_found_where_it_is_to_be_skipped():
    for overlap, wrong in (("skip", 1), ("allow", 0), ("queue", 0), ("cancel_other", 1)):
        plan = SyntheticSchedule(overlap=overlap)
        first = plan.fire(10)
        second = plan.fire(20)
        plan.done(first)
        plan.done(second)
        plan.stay(30)
        assert len(plan.wrong()) == wrong, overlap


def test_what_ends_while_it_is_to_be_cancelled_need_not_be():
    plan = SyntheticSchedule(overlap="cancel_other")
    first = plan.fire(10)
    plan.lease(first)
    plan.run(first)
    second = plan.fire(20)
    plan.wait(-2.9)
    plan.finish(first)
    plan.stay(30)
    assert plan.wrong() == []
    plan.steps[-1] = msgspec.structs.replace(plan.steps[-1], boot=plan.now + 2)
    assert plan.wrong() == [
        f"{told(20)} became the task {second}, and {first} was not cancelled for it"
    ]


def test_a_clock_that_is_set_back_does_not_bring_back_what_has_passed():
    plan = fired(10)
    plan.step("update", -30, paused_at=at(-30).isoformat())
    plan.step("update", -28, paused_at=None)
    plan.remove(-20, next_run=20)
    assert plan.wrong() == []


def test_tasks_that_are_to_queue_and_start_out_of_turn_are_found():
    plan = SyntheticSchedule(overlap="queue")
    first, second = plan.fire(10), plan.fire(20)
    plan.lease(first)
    plan.stay(30)
    assert plan.wrong() == []
    plan.lease(second)
    assert plan.wrong() == [f"the task {second} was leased before the task {first} had ended"]


def test_a_task_that_no_schedule_has_is_nobodys():
    plan = fired(10)
    plan.occurrences.clear()
    plan.stay(10)
    assert any("nobody asked for it" in one for one in plan.wrong())


def test_a_rule_that_no_client_asks_for_is_not_guessed():
    with pytest.raises(ValueError, match="daily"):
        list(times({"daily": "06:30"}, ZERO, ZERO, ZERO))
