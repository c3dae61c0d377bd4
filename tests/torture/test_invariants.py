"""Each invariant detects a synthetic violation, and accepts what a fault may legitimately cause."""

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
    lease,
    lost,
    messages,
    run,
    run_with,
)

CORRECT_RUNS: dict[str, list[RunStep]] = {
    "a task that waits": [],
    "a task that runs": [lease],
    "a task that is done": [done],
    "a task that is done after a loss": [lost, done],
    "a task that is done after a failure": [failed, done],
    "a task that is retried after a backoff": [
        run,
        lambda synthetic: synthetic.finish(TASK, "failed", "scheduled"),
        lambda synthetic: synthetic.release(TASK),
        done,
    ],
    "a task that fails for good": [
        failed,
        failed,
        run,
        lambda synthetic: synthetic.finish(TASK, "failed", "failed"),
    ],
    "a task that is cancelled before it starts": [
        lambda synthetic: synthetic.end(TASK, "cancelled"),
        cancelled,
    ],
    "a task that is cancelled while it runs": [
        run,
        cancelled,
        lambda synthetic: synthetic.finish(TASK, "cancelled", "cancelled"),
    ],
    "a submission whose answer was lost, stored all the same": [
        lambda synthetic: synthetic.store(8, idempotency_key="k"),
        lambda synthetic: synthetic.call("submit", outcome="info", key="k"),
    ],
    "a submission whose answer was lost, never stored": [
        lambda synthetic: synthetic.call("submit", outcome="info", key="k"),
    ],
    "a read that was asked before the end and answered late": [
        done,
        lambda synthetic: synthetic.call("get", result={"id": "7", "status": "done"}),
        lambda synthetic: synthetic.calls.append(
            msgspec.structs.replace(
                synthetic.calls[-1],
                invoked=0.0,
                returned=synthetic.now + 9,
                result={"id": "7", "status": "running"},
            )
        ),
    ],
    "a change of leader": [lost, lambda synthetic: synthetic.begin_term(2), done],
}


@pytest.mark.parametrize("name", CORRECT_RUNS)
def test_a_correct_run_is_accepted(name: str) -> None:
    synthetic = run_with(*CORRECT_RUNS[name])
    has_ended = not synthetic.live
    assert judge(synthetic.evidence(phase="quiet" if has_ended else "going")) == []


def test_an_acknowledged_task_that_is_not_stored_is_found() -> None:
    synthetic = run_with()
    del synthetic.tasks[TASK]
    assert messages(synthetic, 1) == ["was acknowledged and is not stored"]


def test_a_task_that_differs_from_its_submission_is_found() -> None:
    synthetic = run_with()
    synthetic.tasks[TASK] = msgspec.structs.replace(
        synthetic.tasks[TASK], payload={"source": "other"}
    )
    assert messages(synthetic, 1) == ["differs from its submission: source"]


def test_a_task_of_a_batch_that_is_not_stored_is_found() -> None:
    synthetic = run_with()
    synthetic.call("batch", result={"ids": ["7", "8"]}, args={"tasks": [{}, {}]})
    assert messages(synthetic, 1) == ["was acknowledged and is not stored"]


def test_an_answer_before_the_task_was_stored_is_found() -> None:
    synthetic = SyntheticRun()
    synthetic.call("submit", result={"id": "7"}, args={"source": SOURCE})
    synthetic.store(TASK)
    assert messages(synthetic, 1) == ["was acknowledged 1.00 s before it was stored"]


@pytest.mark.parametrize("outcome", [None, "fail"])
def test_a_task_that_no_client_submitted_is_found(outcome: Any) -> None:
    synthetic = SyntheticRun()
    synthetic.store(TASK, idempotency_key="k")
    if outcome is not None:
        synthetic.call("submit", outcome=outcome, key="k")
    assert messages(synthetic, 2) == ["no client submitted it (its key is 'k')"]


def test_a_batch_whose_answer_was_lost_is_known_by_its_key() -> None:
    synthetic = SyntheticRun()
    synthetic.store(TASK)
    synthetic.call("batch", outcome="info", key="b")
    evidence = synthetic.evidence()
    assert [violation.task for violation in ALL[2](evidence)] == [TASK]
    row = SubmissionRow(key="b", task_id=TASK, batch=[TASK])
    dump = msgspec.structs.replace(evidence.dump, submissions=[row])
    assert ALL[2](Evidence(dump=dump, calls=synthetic.calls)) == []


def test_a_task_without_one_end_is_found() -> None:
    synthetic = run_with(done)
    synthetic.live[TASK] = LiveRow(id=TASK)
    assert messages(synthetic, 3) == ["live and ended"]
    del synthetic.live[TASK], synthetic.ends[TASK]
    assert messages(synthetic, 3) == ["neither live nor ended"]


def test_a_step_after_the_end_is_found() -> None:
    synthetic = run_with(done)
    synthetic.note(what="live", op="insert", task=TASK, status="waiting", attempt=0)
    assert messages(synthetic, 3) == ["waiting (attempt 0) after it had ended done"]


def test_an_end_that_changes_is_found() -> None:
    synthetic = run_with(done)
    synthetic.note(what="end", op="update", task=TASK, status="failed")
    assert "its end was changed: update of the end failed" in messages(synthetic, 3)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            lambda synthetic: (synthetic.lease(TASK), synthetic.lease(TASK)),
            "running (attempt 1, token 1) became running (attempt 2, token 2)",
        ),
        (
            lambda synthetic: synthetic.note(
                what="live", op="update", task=TASK, status="waiting", attempt=4
            ),
            "waiting (attempt 0) became waiting (attempt 4)",
        ),
        (
            lambda synthetic: synthetic.end(TASK, "done"),
            "waiting (attempt 0) ended done without a lease",
        ),
        (
            lambda synthetic: synthetic.note(
                what="live", op="delete", task=TASK, status="waiting", attempt=0
            ),
            "waiting (attempt 0) vanished without an end",
        ),
        (
            lambda synthetic: (synthetic.lease(TASK), synthetic.end(TASK, "done")),
            "running (attempt 1, token 1) ended done without a record of the attempt",
        ),
        (
            lambda synthetic: (synthetic.lease(TASK), synthetic.finish(TASK, "failed", "done")),
            "running (attempt 1, token 1) is done after an attempt that was failed",
        ),
        (
            lambda synthetic: (
                synthetic.lease(TASK, cancel_requested=True),
                synthetic.finish(TASK, "lost", "waiting"),
            ),
            "running (attempt 1, token 1) became waiting (attempt 1) "
            "although it was to be cancelled",
        ),
        (
            lambda synthetic: (synthetic.lease(TASK), synthetic._live(TASK, "update")),
            "running (attempt 1, token 1) became running (attempt 1, token 1)",
        ),
        (
            lambda synthetic: synthetic.note(
                what="live", op="insert", task=8, status="running", attempt=1, token=9
            ),
            "began as running (attempt 1, token 9)",
        ),
    ],
)
def test_an_illegal_step_is_found(step: RunStep, message: str) -> None:
    assert message in messages(run_with(step), 4)


def test_a_counter_that_does_not_follow_from_the_outcome_is_found() -> None:
    synthetic = run_with(failed)
    synthetic.steps[-1] = msgspec.structs.replace(synthetic.steps[-1], failures=0)
    assert messages(synthetic, 4) == [
        "after attempt 1 (token 1) was failed it counts 0 failures and 0 losses instead of 1 and 0"
    ]
