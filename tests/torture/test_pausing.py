"""What is said of pauses rejects made-up runs that break it, and nothing else."""

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
    def tell(story: SyntheticRun) -> None:
        story.call(op, args={"graph": str(GRAPH)}, result={"graph": str(GRAPH)}, outcome=outcome)

    return tell


def each(do: Callable[[SyntheticRun, int], object]) -> RunStep:
    def tell(story: SyntheticRun) -> None:
        for task in (FIRST, SECOND):
            do(story, task)

    return tell


def run(story: SyntheticRun, task: int) -> None:
    story.lease(task)
    story.run(task)
    story.finish(task)


pause, resume = each(SyntheticRun.pause), each(SyntheticRun.resume)
paused, resumed = call("pause graph"), call("resume graph")


def wrong(*tellings: RunStep, **other: str) -> list[str]:
    """Return what is found wrong when a graph was submitted, and then that."""
    story = SyntheticRun()
    story.submit(FIRST, graph_id=GRAPH)
    story.submit(SECOND, graph_id=GRAPH)
    story.graphs.append(GraphRow(id=GRAPH, task_ids=[FIRST, SECOND]))
    for telling in tellings:
        telling(story)
    return [str(one) for one in judge(story.evidence(**other))]


def test_a_graph_that_is_paused_resumed_and_run_is_accepted():
    assert wrong(pause, paused, resume, resumed, each(run), phase="quiet") == []


def test_what_runs_may_go_on_and_be_tried_again_once_it_is_resumed():
    def fail(story: SyntheticRun) -> None:
        story.write("end", FIRST)
        story.finish(FIRST, "failed", "paused")

    def start(story: SyntheticRun) -> None:
        story.lease(FIRST)
        story.write("start", FIRST)

    assert wrong(start, pause, paused, fail, resume, resumed, each(run)) == []
    assert wrong(start, pause, paused, resume, resumed) == []


def test_a_start_after_the_pause_was_told_is_found():
    def start(story: SyntheticRun) -> None:
        story.lease(FIRST)

    found = wrong(pause, paused, start)
    assert "[23] task 1: was leased 1.00 s after its pause was told" in found
    assert any("paused (attempt 0) became running" in one for one in found)


def test_a_start_is_none_of_the_pause_s_once_somebody_may_have_resumed_it():
    def start(story: SyntheticRun) -> None:
        story.resume(FIRST)
        story.lease(FIRST)

    found = wrong(pause, paused, start)
    assert found == ["[23] task 1: was leased 2.00 s after its pause was told"]
    # Nobody knows whether it was done, and when.
    assert wrong(pause, paused, call("resume graph", "info"), start) == []
    assert wrong(call("resume graph", "info"), pause, paused, start) == []
    assert wrong(pause, paused, call("resume graph", "fail"), start) != []


def test_a_resume_that_was_answered_with_a_conflict_may_have_been_done_by_its_first_try():
    def ended(story: SyntheticRun) -> None:
        asked = {"task": str(FIRST)}
        story.call("resume", args=asked, outcome="fail", result={"code": "conflict"})

    def refused(story: SyntheticRun) -> None:
        asked = {"task": str(FIRST)}
        story.call("resume", args=asked, outcome="fail", result={"code": "not_found"})

    def start(story: SyntheticRun) -> None:
        story.resume(FIRST)
        story.lease(FIRST)

    told = (pause_first, alone("pause"))
    assert wrong(*told, ended, start) == []
    assert wrong(*told, refused, start) != []


def test_a_task_that_the_pause_has_overlooked_is_found():
    found = wrong(lambda story: story.pause(FIRST), paused)
    assert found == ["[23] task 2: was not paused when its pause was told"]
    assert wrong(lambda story: story.pause(FIRST), call("pause graph", "info")) == []


def test_a_task_that_the_resume_has_overlooked_is_found():
    found = wrong(pause, paused, lambda story: story.resume(FIRST), resumed)
    assert found == ["[23] task 2: was still paused when its resume was told"]


def test_a_graph_that_stays_paused_is_found_once_all_is_quiet():
    assert len(wrong(pause, paused, phase="quiet")) == 2


def alone(op: Literal["pause", "resume"], outcome: Outcome = "ok") -> RunStep:
    """Tell of a call that is about the first task alone."""
    return lambda story: story.call(op, args={"task": str(FIRST)}, outcome=outcome)


def pause_first(story: SyntheticRun) -> None:
    story.pause(FIRST)


def resume_first(story: SyntheticRun) -> None:
    story.resume(FIRST)


def test_a_task_that_is_paused_alone_does_not_start_before_it_is_resumed():
    def start(story: SyntheticRun) -> None:
        story.lease(FIRST)

    told = (pause_first, alone("pause"))
    assert wrong(*told, resume_first, alone("resume"), each(run), phase="quiet") == []
    assert wrong(*told, alone("resume", "info"), resume_first, start) == []
    found = wrong(*told, resume_first, start)
    assert found == ["[23] task 1: was leased 2.00 s after its pause was told"]
    assert wrong(alone("pause")) == ["[23] task 1: was not paused when its pause was told"]
    assert wrong(alone("pause", "info")) == wrong(alone("pause", "fail")) == []
    found = wrong(*told, lambda story: story.wait(1), alone("resume"))
    assert found == ["[23] task 1: was still paused when its resume was told"]


@pytest.mark.parametrize("status", ["waiting", "scheduled"])
def test_a_task_that_is_tried_again_although_it_is_paused_is_found(status):
    def fail(story: SyntheticRun) -> None:
        story.lease(FIRST)
        story.run(FIRST)
        story.pause(FIRST)
        story.finish(FIRST, "failed", status)

    [message] = wrong(fail)
    assert message.endswith(f"{status} (attempt 1) is marked as paused")


def test_a_task_that_is_paused_without_a_mark_is_found():
    def forget(story: SyntheticRun) -> None:
        story.pause(FIRST)
        story.paused.clear()
        story._live(FIRST, "update")

    [message] = wrong(forget)
    assert message.endswith("paused (attempt 0) is not marked as paused")


def test_of_a_cancelled_graph_only_what_had_ended_may_have_ended_otherwise():
    def finish_the_first(story: SyntheticRun) -> None:
        run(story, FIRST)

    def end_the_second(story: SyntheticRun) -> None:
        story.end(SECOND, "cancelled")

    def start_the_second(story: SyntheticRun) -> None:
        story.lease(SECOND)

    cancelled = call("cancel graph")
    assert wrong(finish_the_first, end_the_second, cancelled) == []
    found = wrong(finish_the_first, cancelled, start_the_second)
    assert found == ["[14] task 2: was leased 1.00 s after its cancellation was told"]


def at(instant: Callable[[SyntheticRun], float], do: RunStep) -> RunStep:
    """Tell of something that the journal has at that instant."""

    def tell(story: SyntheticRun) -> None:
        now, story.now = story.now, instant(story)
        steps = len(story.steps)
        do(story)
        story.steps[steps:] = [
            msgspec.structs.replace(step, boot=instant(story)) for step in story.steps[steps:]
        ]
        story.now = max(now, story.now)

    return tell


def before_the_call(seconds: float) -> Callable[[SyntheticRun], float]:
    return lambda story: story.calls[-1].invoked - seconds


def before_the_answer(seconds: float) -> Callable[[SyntheticRun], float]:
    return lambda story: (story.calls[-1].returned or 0.0) - seconds


@pytest.mark.parametrize(("early", "violations"), [(0.009, 0), (0.2, 1)])
def test_a_lease_is_before_the_resume_only_if_the_clocks_can_tell(early, violations):
    def resume_and_start(story: SyntheticRun) -> None:
        story.resume(FIRST)
        story.lease(FIRST)

    told = (pause_first, alone("pause"), lambda story: story.wait(5), alone("resume"))
    found = wrong(*told, at(before_the_call(early), resume_and_start))
    assert len(found) == violations, found


@pytest.mark.parametrize(("early", "violations"), [(0.009, 0), (0.2, 1)])
@pytest.mark.parametrize(
    ("told", "then"),
    [
        ((pause_first, alone("pause")), resume_first),
        ((pause_first, alone("pause"), resume_first, alone("resume")), pause_first),
    ],
)
def test_a_change_right_after_an_answer_is_not_what_the_answer_told(told, then, early, violations):
    found = wrong(*told, at(before_the_answer(early), then))
    assert len(found) == violations, found
