"""The invariant of pauses detects synthetic violations, and accepts correct runs."""

from collections.abc import Callable
from typing import Literal

import msgspec
import pytest

from tests.torture.database_dump import GraphRow
from tests.torture.invariants import judge
from tests.torture.synthetic_run import RunStep, SyntheticRun

GRAPH, FIRST, SECOND = 50, 1, 2
Outcome = Literal["ok", "info", "fail"]


def call(op: Literal["pause graph", "resume graph", "cancel graph"], outcome: Outcome = "ok"):
    def apply(synthetic: SyntheticRun) -> None:
        synthetic.call(
            op, args={"graph": str(GRAPH)}, result={"graph": str(GRAPH)}, outcome=outcome
        )

    return apply


def for_each_task(do: Callable[[SyntheticRun, int], object]) -> RunStep:
    def apply(synthetic: SyntheticRun) -> None:
        for task in (FIRST, SECOND):
            do(synthetic, task)

    return apply


def run(synthetic: SyntheticRun, task: int) -> None:
    synthetic.lease(task)
    synthetic.run(task)
    synthetic.finish(task)


pause, resume = for_each_task(SyntheticRun.pause), for_each_task(SyntheticRun.resume)
paused, resumed = call("pause graph"), call("resume graph")


def violations_of(*steps: RunStep, **other: str) -> list[str]:
    """Return all violations of a run with a graph, followed by `steps`."""
    synthetic = SyntheticRun()
    synthetic.submit(FIRST, graph_id=GRAPH)
    synthetic.submit(SECOND, graph_id=GRAPH)
    synthetic.graphs.append(GraphRow(id=GRAPH, task_ids=[FIRST, SECOND]))
    for step in steps:
        step(synthetic)
    return [str(violation) for violation in judge(synthetic.evidence(**other))]


def test_a_graph_that_is_paused_resumed_and_run_is_accepted():
    assert violations_of(pause, paused, resume, resumed, for_each_task(run), phase="quiet") == []


def test_running_tasks_may_continue_and_be_retried_once_they_are_resumed():
    def fail(synthetic: SyntheticRun) -> None:
        synthetic.write("end", FIRST)
        synthetic.finish(FIRST, "failed", "paused")

    def start(synthetic: SyntheticRun) -> None:
        synthetic.lease(FIRST)
        synthetic.write("start", FIRST)

    assert violations_of(start, pause, paused, fail, resume, resumed, for_each_task(run)) == []
    assert violations_of(start, pause, paused, resume, resumed) == []


def test_a_start_after_an_acknowledged_pause_is_found():
    def start(synthetic: SyntheticRun) -> None:
        synthetic.lease(FIRST)

    violations = violations_of(pause, paused, start)
    assert "[23] task 1: was leased 1.00 s after its pause was acknowledged" in violations
    assert any("paused (attempt 0) became running" in message for message in violations)


def test_a_start_is_accepted_once_a_resume_may_have_had_an_effect():
    def start(synthetic: SyntheticRun) -> None:
        synthetic.resume(FIRST)
        synthetic.lease(FIRST)

    violations = violations_of(pause, paused, start)
    assert violations == ["[23] task 1: was leased 2.00 s after its pause was acknowledged"]
    # Whether, and when, it had an effect is unknown.
    assert violations_of(pause, paused, call("resume graph", "info"), start) == []
    assert violations_of(call("resume graph", "info"), pause, paused, start) == []
    assert violations_of(pause, paused, call("resume graph", "fail"), start) != []


def test_the_first_try_of_a_resume_that_got_a_conflict_may_have_had_an_effect():
    def ended(synthetic: SyntheticRun) -> None:
        args = {"task": str(FIRST)}
        synthetic.call("resume", args=args, outcome="fail", result={"code": "conflict"})

    def refused(synthetic: SyntheticRun) -> None:
        args = {"task": str(FIRST)}
        synthetic.call("resume", args=args, outcome="fail", result={"code": "not_found"})

    def start(synthetic: SyntheticRun) -> None:
        synthetic.resume(FIRST)
        synthetic.lease(FIRST)

    setup = (pause_first, call_alone("pause"))
    assert violations_of(*setup, ended, start) == []
    assert violations_of(*setup, refused, start) != []


def test_a_task_that_the_pause_skipped_is_found():
    violations = violations_of(lambda synthetic: synthetic.pause(FIRST), paused)
    assert violations == ["[23] task 2: was not paused when its pause was acknowledged"]
    assert (
        violations_of(lambda synthetic: synthetic.pause(FIRST), call("pause graph", "info")) == []
    )


def test_a_task_that_the_resume_skipped_is_found():
    violations = violations_of(pause, paused, lambda synthetic: synthetic.resume(FIRST), resumed)
    assert violations == ["[23] task 2: was still paused when its resume was acknowledged"]


def test_a_graph_that_stays_paused_is_found_in_the_quiet_phase():
    assert len(violations_of(pause, paused, phase="quiet")) == 2


def call_alone(op: Literal["pause", "resume"], outcome: Outcome = "ok") -> RunStep:
    """Return the step of a call for the first task alone."""
    return lambda synthetic: synthetic.call(op, args={"task": str(FIRST)}, outcome=outcome)


def pause_first(synthetic: SyntheticRun) -> None:
    synthetic.pause(FIRST)


def resume_first(synthetic: SyntheticRun) -> None:
    synthetic.resume(FIRST)


def test_a_task_that_is_paused_alone_does_not_start_before_it_is_resumed():
    def start(synthetic: SyntheticRun) -> None:
        synthetic.lease(FIRST)

    setup = (pause_first, call_alone("pause"))
    assert (
        violations_of(*setup, resume_first, call_alone("resume"), for_each_task(run), phase="quiet")
        == []
    )
    assert violations_of(*setup, call_alone("resume", "info"), resume_first, start) == []
    violations = violations_of(*setup, resume_first, start)
    assert violations == ["[23] task 1: was leased 2.00 s after its pause was acknowledged"]
    assert violations_of(call_alone("pause")) == [
        "[23] task 1: was not paused when its pause was acknowledged"
    ]
    assert (
        violations_of(call_alone("pause", "info"))
        == violations_of(call_alone("pause", "fail"))
        == []
    )
    violations = violations_of(*setup, lambda synthetic: synthetic.wait(1), call_alone("resume"))
    assert violations == ["[23] task 1: was still paused when its resume was acknowledged"]


@pytest.mark.parametrize("status", ["waiting", "scheduled"])
def test_a_task_that_is_retried_although_it_is_paused_is_found(status):
    def fail(synthetic: SyntheticRun) -> None:
        synthetic.lease(FIRST)
        synthetic.run(FIRST)
        synthetic.pause(FIRST)
        synthetic.finish(FIRST, "failed", status)

    [message] = violations_of(fail)
    assert message.endswith(f"{status} (attempt 1) is marked as paused")


def test_a_task_that_is_paused_without_a_mark_is_found():
    def forget(synthetic: SyntheticRun) -> None:
        synthetic.pause(FIRST)
        synthetic.paused.clear()
        synthetic._live(FIRST, "update")

    [message] = violations_of(forget)
    assert message.endswith("paused (attempt 0) is not marked as paused")


def test_only_tasks_that_had_ended_before_may_end_otherwise_in_a_cancelled_graph():
    def finish_the_first(synthetic: SyntheticRun) -> None:
        run(synthetic, FIRST)

    def end_the_second(synthetic: SyntheticRun) -> None:
        synthetic.end(SECOND, "cancelled")

    def start_the_second(synthetic: SyntheticRun) -> None:
        synthetic.lease(SECOND)

    cancelled = call("cancel graph")
    assert violations_of(finish_the_first, end_the_second, cancelled) == []
    violations = violations_of(finish_the_first, cancelled, start_the_second)
    assert violations == ["[14] task 2: was leased 1.00 s after its cancellation was acknowledged"]


def at(instant: Callable[[SyntheticRun], float], do: RunStep) -> RunStep:
    """Return a step whose journal entries have the given time."""

    def apply(synthetic: SyntheticRun) -> None:
        now, synthetic.now = synthetic.now, instant(synthetic)
        steps = len(synthetic.steps)
        do(synthetic)
        synthetic.steps[steps:] = [
            msgspec.structs.replace(step, boot=instant(synthetic))
            for step in synthetic.steps[steps:]
        ]
        synthetic.now = max(now, synthetic.now)

    return apply


def before_the_call(seconds: float) -> Callable[[SyntheticRun], float]:
    return lambda synthetic: synthetic.calls[-1].invoked - seconds


def before_the_response(seconds: float) -> Callable[[SyntheticRun], float]:
    return lambda synthetic: (synthetic.calls[-1].returned or 0.0) - seconds


@pytest.mark.parametrize(("early", "violations"), [(0.009, 0), (0.2, 1)])
def test_a_lease_before_the_resume_is_excused_within_the_tolerance_of_the_clocks(early, violations):
    def resume_and_start(synthetic: SyntheticRun) -> None:
        synthetic.resume(FIRST)
        synthetic.lease(FIRST)

    setup = (
        pause_first,
        call_alone("pause"),
        lambda synthetic: synthetic.wait(5),
        call_alone("resume"),
    )
    found = violations_of(*setup, at(before_the_call(early), resume_and_start))
    assert len(found) == violations, found


@pytest.mark.parametrize(("early", "violations"), [(0.009, 0), (0.2, 1)])
@pytest.mark.parametrize(
    ("setup", "then"),
    [
        ((pause_first, call_alone("pause")), resume_first),
        ((pause_first, call_alone("pause"), resume_first, call_alone("resume")), pause_first),
    ],
)
def test_a_change_right_after_an_acknowledgement_is_excused_within_the_tolerance(
    setup, then, early, violations
):
    found = violations_of(*setup, at(before_the_response(early), then))
    assert len(found) == violations, found
