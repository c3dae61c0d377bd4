"""The invariants about what really ran: each rejects a run made up to break it."""

from typing import Any

import msgspec
import pytest

from tests.torture.database_dump import TenantRow
from tests.torture.evidence import FaultInterval
from tests.torture.synthetic_run import (
    TASK,
    SyntheticRun,
    cancelled,
    done,
    failed,
    judged,
    lease,
    lost,
    run,
    start,
    told,
)


def test_a_success_that_nobody_wrote_down_is_found() -> None:
    story = told(start, lambda story: story.finish(TASK))
    assert judged(story, 5) == ["attempt 1 succeeded without a trace"]


def test_a_success_that_is_told_before_it_happened_is_found() -> None:
    story = told(start, lambda story: story.finish(TASK))
    story.write("end", TASK)
    assert judged(story, 5) == ["attempt 1 was said to have succeeded before it ended"]


def test_a_report_of_an_attempt_that_another_has_replaced_is_found() -> None:
    story = told(lost, lease)
    story.finish(TASK, attempt=1, token=1)
    assert judged(story, 6) == [
        "attempt 1 (token 1) was succeeded while attempt 2 (token 2) was the holder"
    ]


def test_a_token_that_does_not_rise_is_found() -> None:
    story = told(lost)
    story.lease(TASK, token=0)
    assert judged(story, 6) == ["token 0 came after token 1"]


def test_an_attempt_that_is_taken_from_a_node_that_is_alive_is_found() -> None:
    story = told(start, lambda story: story.finish(TASK, "lost", "waiting", reason="node_lost"))
    assert judged(story, 6) == ["attempt 1 (token 1) was lost while its node was alive"]


@pytest.mark.parametrize(("seconds", "violations"), [(10, 1), (14, 0)])
def test_a_lease_of_a_node_that_ends_before_its_time_is_found(
    seconds: float, violations: int
) -> None:
    story = told()
    story.note(what="renewal", op="update", incarnation=1)
    story.wait(seconds)
    story.note(what="incarnation", op="update", incarnation=1, status="ended", reason="expired")
    assert len(judged(story, 6)) == violations
    story.troubles.append(
        FaultInterval(kind="database_clock", began=story.now - 5, healed=story.now)
    )
    assert judged(story, 6) == []
    story.note(what="renewal", op="update", incarnation=1)
    assert judged(story, 6)[-1] == "incarnation 1 was renewed after its end"


@pytest.mark.parametrize(("late", "lasted", "violations"), [(0.13, 15.0, 0), (0.13, 14.8, 1)])
def test_a_renewal_counts_from_the_time_that_it_was_computed_from(
    late: float, lasted: float, violations: int
) -> None:
    story = told()
    story.note(what="renewal", op="update", incarnation=1, computed_ago=late)
    story.wait(lasted - late - 1)
    story.note(what="incarnation", op="update", incarnation=1, status="ended", reason="expired")
    assert len(judged(story, 6)) == violations


@pytest.mark.parametrize(("began", "healed"), [(0.009, 9.0), (-20.0, -11.009)])
def test_a_clock_that_steps_as_a_lease_begins_or_ends_excuses_its_end(
    began: float, healed: float
) -> None:
    story = told()
    story.note(what="renewal", op="update", incarnation=1)
    story.wait(10)
    story.note(what="incarnation", op="update", incarnation=1, status="ended", reason="expired")
    for apart, violations in ((0.0, 0), (0.2, 1)):
        sign = 1 if began > 0 else -1
        story.troubles = [
            FaultInterval(
                kind="database_clock",
                began=story.now + began + sign * apart,
                healed=story.now + healed + sign * apart,
            )
        ]
        assert len(judged(story, 6)) == violations


def test_an_end_that_is_journaled_late_does_not_lengthen_a_lease() -> None:
    story = told()
    story.note(what="renewal", op="update", incarnation=1)
    story.wait(15.1 - 1)
    ended = {"what": "incarnation", "op": "update", "status": "ended", "reason": "expired"}
    story.note(**ended, incarnation=1, computed_ago=0.5)
    assert judged(story, 6) == ["incarnation 1 expired 14.60 s after it was renewed"]


def test_a_token_that_does_not_rise_for_the_task_that_sees_it_is_found() -> None:
    story = told(failed, lease, lambda story: story.write("start", TASK, token=1))
    assert judged(story, 6) == ["was shown token 1 after token 1"]


def test_a_word_of_an_attempt_after_a_later_one_has_begun_is_found() -> None:
    story = told(lost, run, lambda story: story.write("beat", TASK, token=1))
    assert judged(story, 7) == ["token 1 wrote after token 2 began"]


def test_an_attempt_that_begins_twice_is_found() -> None:
    story = told(run, lambda story: story.write("start", TASK))
    assert judged(story, 7) == ["token 1 began twice"]


@pytest.mark.parametrize(("after_thaw", "violations"), [(0.5, 0), (3.0, 1)])
def test_a_node_that_is_thawed_has_a_second_to_kill_what_it_lost(
    after_thaw: float, violations: int
) -> None:
    story = told(lost, run)
    thawed = story.now + 60
    story.troubles.append(
        FaultInterval(kind="node_frozen", host="node-1", began=story.now - 20, healed=thawed)
    )
    story.now = thawed + after_thaw - 1
    story.write("beat", TASK, token=1, node="node-1")
    assert len(judged(story, 7)) == violations
    story.troubles[0] = msgspec.structs.replace(story.troubles[0], host="node-2")
    assert len(judged(story, 7)) == 1


@pytest.mark.parametrize(("early", "violations"), [(0.009, 0), (0.2, 1)])
def test_a_word_before_a_node_is_frozen_is_excused_only_if_the_clocks_can_not_tell(
    early: float, violations: int
) -> None:
    story = told(lost, run, lambda story: story.write("beat", TASK, token=1, node="node-1"))
    began = story.now + early
    story.troubles.append(
        FaultInterval(kind="node_frozen", host="node-1", began=began, healed=began + 60)
    )
    assert len(judged(story, 7)) == violations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attempt": 3}, "its attempts are [1, 3]"),
        (
            {"outcome": "failed"},
            "counts 2 attempts, 0 failures and 1 losses, but there are 2, 1 and 1",
        ),
    ],
)
def test_attempts_that_do_not_add_up_are_found(change: dict[str, Any], message: str) -> None:
    story = told(lost, done)
    story.attempts[-1] = msgspec.structs.replace(story.attempts[-1], **change)
    assert judged(story, 8) == [message]


def test_a_task_that_is_tried_too_often_is_found() -> None:
    story = told()
    for _ in range(3):
        failed(story)
    assert judged(story, 8) == ["is waiting although it had to be given up"]
    run(story)
    story.finish(TASK, "failed", "failed")
    assert judged(story, 8) == ["4 failures of 3 that are allowed"]


def test_a_task_that_is_given_up_too_early_is_found() -> None:
    story = told(lease, lambda story: story.finish(TASK, "lost", "failed"))
    assert judged(story, 8) == ["was given up without a cause (None)"]


@pytest.mark.parametrize(
    ("losses", "violations"), [(2, ["was given up without a cause (lost_at_start)"]), (3, [])]
)
def test_a_task_may_be_given_up_that_three_incarnations_were_lost_with(
    losses: int, violations: list[str]
) -> None:
    story = told(*[lost] * (losses - 1), lease)
    story.finish(TASK, "lost", "failed")
    story.ends[TASK] = msgspec.structs.replace(story.ends[TASK], reason="lost_at_start")
    story.attempts = [
        msgspec.structs.replace(row, incarnation_id=row.attempt) for row in story.attempts
    ]
    assert judged(story, 8) == violations


def test_a_failed_task_that_is_no_dead_letter_is_found() -> None:
    story = SyntheticRun()
    story.submit(TASK, on_lost="fail")
    story.lease(TASK)
    story.finish(TASK, "lost", "failed")
    assert judged(story, 8) == []
    story.dead_letters.clear()
    assert judged(story, 8) == ["has failed and is no dead letter"]


def test_a_node_that_is_given_more_than_it_has_is_found() -> None:
    story = SyntheticRun()
    for task in (1, 2, 3):
        story.submit(task)
        story.lease(task)
    assert judged(story, 11) == ["incarnation 1 was given {'cpu_milli': 500} too much"]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({}, []),
        ({"max_running": 2}, []),
        ({"max_running": 1}, ["2 run of 1 that may"]),
        ({"max_resources": {"cpu_milli": 1000}}, []),
        ({"max_resources": {"cpu_milli": 900}}, ["1000 cpu_milli of 900 are given"]),
    ],
)
def test_a_tenant_that_has_more_at_once_than_it_may_is_found(
    limits: dict[str, Any], found: list[str]
) -> None:
    story = SyntheticRun()
    story.tenants = [TenantRow(id=1, **limits), TenantRow(id=2, max_running=1)]
    for task in (1, 2):
        story.submit(task)
        story.lease(task)
    story.submit(3, tenant_id=2)
    story.lease(3)
    assert judged(story, 12) == found


def test_what_has_ended_makes_room_in_a_limit() -> None:
    story = told()
    story.tenants = [TenantRow(id=1, max_running=1)]
    for telling in (failed, lost, done):
        telling(story)
    story.submit(8)
    story.lease(8)
    assert judged(story, 12) == []


def test_more_with_a_key_than_it_allows_are_found() -> None:
    story = told(lease)
    story.keys = {1: {"key": "k", "limit": 1}}
    assert judged(story, 12) == []
    story.submit(8)
    story.lease(8)
    assert judged(story, 12) == ["2 run with a key that allows 1"]


def test_a_node_that_runs_more_than_it_has_is_found() -> None:
    story = SyntheticRun()
    for task in (1, 2):
        story.submit(task)
        story.lease(task)
        story.write("start", task, cpu_milli=600)
    assert judged(story, 11) == []
    for task in (1, 2):
        story.write("end", task)
    [message] = judged(story, 11)
    assert message.startswith("node-1 ran 1200 of 1000 m cpu")


def test_a_key_that_stands_for_two_tasks_is_found() -> None:
    story = SyntheticRun()
    for task in (1, 2):
        story.store(task, idempotency_key="k")
        story.call("submit", key="k", result={"id": str(task)})
    assert judged(story, 13) == [
        "the key 'k' stands for the tasks [1, 2]",
        "the key 'k' gave [1], then [2]",
    ]


def test_a_key_that_is_accepted_with_another_body_is_found() -> None:
    story = SyntheticRun()
    story.store(TASK, idempotency_key="k")
    for body in ("a", "b"):
        story.call("submit", key="k", result={"id": "7"}, args={"source": body})
    assert judged(story, 13) == ["2 different bodies were accepted as 'k'"]


def test_a_lease_after_the_cancellation_was_told_is_found() -> None:
    story = told(cancelled, lease)
    assert judged(story, 14) == ["was leased 1.00 s after its cancellation was told"]


def test_a_cancelled_task_that_ends_otherwise_is_found() -> None:
    story = told(run, cancelled, lambda story: story.finish(TASK))
    assert judged(story, 14) == ["ended done although its cancellation was told"]


def test_a_cancelled_task_that_runs_beyond_the_grace_is_found_unless_a_fault_kept_it() -> None:
    story = told(run, cancelled)
    told_at = story.now
    story.wait(20)
    story.write("beat", TASK)
    assert judged(story, 14) == ["ran 21.0 s after its cancellation was told"]
    story.troubles.append(FaultInterval(kind="partition", began=told_at + 2, healed=told_at + 3))
    assert judged(story, 14) == []


def test_an_attempt_that_outruns_its_cap_is_found_unless_its_node_stood_still() -> None:
    story = SyntheticRun()
    story.submit(TASK, execution_cap=5.0)
    story.lease(TASK)
    story.write("start", TASK)
    since = story.now
    story.wait(19)
    story.write("beat", TASK)
    assert judged(story, 15) == ["attempt 1 ran 20.0 s of 16.0 s"]
    trouble = FaultInterval(kind="node_frozen", host="node-2", began=since, healed=since + 5)
    story.troubles.append(trouble)
    assert len(judged(story, 15)) == 1
    story.troubles[0] = msgspec.structs.replace(trouble, host="node-1")
    assert judged(story, 15) == []


@pytest.mark.parametrize(
    ("outcome", "seconds", "message"),
    [
        ("succeeded", 9.0, "attempt 1 is succeeded after 9.0 s"),
        ("capped", 2.0, "attempt 1 was capped after only 2.0 s"),
    ],
)
def test_an_attempt_that_is_called_what_it_was_not_is_found(
    outcome: str, seconds: float, message: str
) -> None:
    story = SyntheticRun()
    story.submit(TASK, execution_cap=5.0)
    run(story)
    story.finish(TASK, outcome, "waiting")
    story.attempts[0] = msgspec.structs.replace(story.attempts[0], wall_seconds=seconds)
    assert judged(story, 15) == [message]
    story.troubles.append(
        FaultInterval(kind="database_clock", began=story.now - 1, healed=story.now)
    )
    assert judged(story, 15) == ([] if outcome == "capped" else [message])


def test_a_term_that_does_not_rise_is_found() -> None:
    story = told(lambda story: story.begin_term(3))
    assert judged(story, 17) == ["term 3 came after term 1"]


def test_a_lease_of_an_old_term_after_a_new_one_is_found() -> None:
    story = told(lambda story: story.begin_term(2), lambda story: story.lease(TASK, term=1))
    assert judged(story, 17) == ["leased in term 1, during term 2"]


def test_a_read_that_goes_back_from_the_end_is_found() -> None:
    story = told(done)
    for status in ("done", "running"):
        story.call("get", result={"id": "7", "status": status})
    assert judged(story, 18) == ["was shown running after it had been shown done"]


def test_an_end_that_was_shown_and_is_not_in_the_database_is_found() -> None:
    story = told(run)
    story.call("wait", result={"id": "7", "status": "done"})
    assert judged(story, 18) == ["was shown done, but is not ended"]


def test_a_task_that_is_left_over_is_found_once_all_is_quiet() -> None:
    story = told()
    assert judged(story, 20) == []
    assert judged(story, 20, phase="quiet") == ["is still waiting, 0 s after it might have started"]
    lease(story)
    assert judged(story, 20, phase="quiet") == ["still runs (attempt 1)"]


def test_a_lease_that_ran_out_and_was_not_ended_is_found_once_all_is_quiet() -> None:
    story = told(done)
    story.incarnations[1] = msgspec.structs.replace(story.incarnations[1], is_late=True)
    assert judged(story, 20, phase="quiet") == [
        "the lease of incarnation 1 ran out and nobody ended it"
    ]
