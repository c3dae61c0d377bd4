"""A checker that cannot fail shows nothing: each invariant rejects a run made up to break it.

And one that cries wolf is no better: what a fault may do, it must accept.
"""

from typing import Any

import msgspec
import pytest

from tests.torture.database_dump import LiveRow, SubmissionRow
from tests.torture.evidence import Evidence
from tests.torture.invariants import ALL, judge
from tests.torture.synthetic_run import (
    SOURCE,
    TASK,
    RunStep,
    SyntheticRun,
    cancelled,
    done,
    failed,
    judged,
    lease,
    lost,
    run,
    told,
)

GOOD: dict[str, list[RunStep]] = {
    "a task that waits": [],
    "a task that runs": [lease],
    "a task that is done": [done],
    "a task that is done after a loss": [lost, done],
    "a task that is done after a failure": [failed, done],
    "a task that is tried again after a while": [
        run,
        lambda story: story.finish(TASK, "failed", "scheduled"),
        lambda story: story.release(TASK),
        done,
    ],
    "a task that is given up": [
        failed,
        failed,
        run,
        lambda story: story.finish(TASK, "failed", "failed"),
    ],
    "a task that is cancelled before it starts": [
        lambda story: story.end(TASK, "cancelled"),
        cancelled,
    ],
    "a task that is cancelled while it runs": [
        run,
        cancelled,
        lambda story: story.finish(TASK, "cancelled", "cancelled"),
    ],
    "a submission whose answer was lost, stored all the same": [
        lambda story: story.store(8, idempotency_key="k"),
        lambda story: story.call("submit", outcome="info", key="k"),
    ],
    "a submission whose answer was lost, never stored": [
        lambda story: story.call("submit", outcome="info", key="k"),
    ],
    "a read that was asked before the end and answered late": [
        done,
        lambda story: story.call("get", result={"id": "7", "status": "done"}),
        lambda story: story.calls.append(
            msgspec.structs.replace(
                story.calls[-1],
                invoked=0.0,
                returned=story.now + 9,
                result={"id": "7", "status": "running"},
            )
        ),
    ],
    "a change of leader": [lost, lambda story: story.begin_term(2), done],
}


@pytest.mark.parametrize("what", GOOD)
def test_a_good_history_is_accepted(what: str) -> None:
    story = told(*GOOD[what])
    is_over = not story.live
    assert judge(story.evidence(phase="quiet" if is_over else "going")) == []


def test_a_task_that_was_acknowledged_and_is_gone_is_found() -> None:
    story = told()
    del story.tasks[TASK]
    assert judged(story, 1) == ["it was acknowledged and is gone"]


def test_a_task_that_is_stored_otherwise_than_asked_is_found() -> None:
    story = told()
    story.tasks[TASK] = msgspec.structs.replace(story.tasks[TASK], payload={"source": "other"})
    assert judged(story, 1) == ["it is not stored as it was asked: source"]


def test_a_task_of_a_batch_that_is_gone_is_found() -> None:
    story = told()
    story.call("batch", result={"ids": ["7", "8"]}, args={"tasks": [{}, {}]})
    assert judged(story, 1) == ["it was acknowledged and is gone"]


def test_an_answer_before_the_task_was_stored_is_found() -> None:
    story = SyntheticRun()
    story.call("submit", result={"id": "7"}, args={"source": SOURCE})
    story.store(TASK)
    assert judged(story, 1) == ["it was acknowledged 1.00 s before it was stored"]


@pytest.mark.parametrize("outcome", [None, "fail"])
def test_a_task_that_nobody_asked_for_is_found(outcome: Any) -> None:
    story = SyntheticRun()
    story.store(TASK, idempotency_key="k")
    if outcome is not None:
        story.call("submit", outcome=outcome, key="k")
    assert judged(story, 2) == ["nobody asked for it (its key is 'k')"]


def test_a_batch_whose_answer_was_lost_is_known_by_its_key() -> None:
    story = SyntheticRun()
    story.store(TASK)
    story.call("batch", outcome="info", key="b")
    evidence = story.evidence()
    assert [one.task for one in ALL[2](evidence)] == [TASK]
    row = SubmissionRow(key="b", task_id=TASK, batch=[TASK])
    books = msgspec.structs.replace(evidence.books, submissions=[row])
    assert ALL[2](Evidence(books=books, calls=story.calls)) == []


def test_a_task_without_one_end_is_found() -> None:
    story = told(done)
    story.live[TASK] = LiveRow(id=TASK)
    assert judged(story, 3) == ["live and ended"]
    del story.live[TASK], story.ends[TASK]
    assert judged(story, 3) == ["neither live nor ended"]


def test_a_step_after_the_end_is_found() -> None:
    story = told(done)
    story.note(what="live", op="insert", task=TASK, status="waiting", attempt=0)
    assert judged(story, 3) == ["waiting (attempt 0) after it had ended done"]


def test_an_end_that_changes_is_found() -> None:
    story = told(done)
    story.note(what="end", op="update", task=TASK, status="failed")
    assert "its end was changed: update of the end failed" in judged(story, 3)


@pytest.mark.parametrize(
    ("telling", "message"),
    [
        (
            lambda story: (story.lease(TASK), story.lease(TASK)),
            "running (attempt 1, token 1) became running (attempt 2, token 2)",
        ),
        (
            lambda story: story.note(
                what="live", op="update", task=TASK, status="waiting", attempt=4
            ),
            "waiting (attempt 0) became waiting (attempt 4)",
        ),
        (lambda story: story.end(TASK, "done"), "waiting (attempt 0) ended done without a lease"),
        (
            lambda story: story.note(
                what="live", op="delete", task=TASK, status="waiting", attempt=0
            ),
            "waiting (attempt 0) vanished without an end",
        ),
        (
            lambda story: (story.lease(TASK), story.end(TASK, "done")),
            "running (attempt 1, token 1) ended done without a record of the attempt",
        ),
        (
            lambda story: (story.lease(TASK), story.finish(TASK, "failed", "done")),
            "running (attempt 1, token 1) is done after an attempt that was failed",
        ),
        (
            lambda story: (
                story.lease(TASK, cancel_requested=True),
                story.finish(TASK, "lost", "waiting"),
            ),
            "running (attempt 1, token 1) became waiting (attempt 1) "
            "although it was to be cancelled",
        ),
        (
            lambda story: (story.lease(TASK), story._live(TASK, "update")),
            "running (attempt 1, token 1) became running (attempt 1, token 1)",
        ),
        (
            lambda story: story.note(
                what="live", op="insert", task=8, status="running", attempt=1, token=9
            ),
            "began as running (attempt 1, token 9)",
        ),
    ],
)
def test_a_step_that_the_design_does_not_know_is_found(telling: RunStep, message: str) -> None:
    assert message in judged(told(telling), 4)


def test_a_counter_that_does_not_follow_from_the_outcome_is_found() -> None:
    story = told(failed)
    story.steps[-1] = msgspec.structs.replace(story.steps[-1], failures=0)
    assert judged(story, 4) == [
        "after attempt 1 (token 1) was failed it counts 0 failures and 0 losses instead of 1 and 0"
    ]
