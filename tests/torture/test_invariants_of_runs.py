"""The invariants of actual executions detect synthetic violations."""

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
    lease,
    lost,
    messages,
    run,
    run_with,
    start,
)


def test_a_success_without_ledger_entries_is_found() -> None:
    synthetic = run_with(start, lambda synthetic: synthetic.finish(TASK))
    assert messages(synthetic, 5) == ["attempt 1 succeeded without entries in the ledger"]


def test_a_success_that_is_recorded_before_it_happened_is_found() -> None:
    synthetic = run_with(start, lambda synthetic: synthetic.finish(TASK))
    synthetic.write("end", TASK)
    assert messages(synthetic, 5) == ["attempt 1 was recorded as succeeded before it ended"]


def test_a_report_of_an_attempt_that_another_has_replaced_is_found() -> None:
    synthetic = run_with(lost, lease)
    synthetic.finish(TASK, attempt=1, token=1)
    assert messages(synthetic, 6) == [
        "attempt 1 (token 1) was succeeded while attempt 2 (token 2) was the holder"
    ]


def test_a_token_that_does_not_rise_is_found() -> None:
    synthetic = run_with(lost)
    synthetic.lease(TASK, token=0)
    assert messages(synthetic, 6) == ["token 0 came after token 1"]


def test_an_attempt_that_is_taken_from_a_node_that_is_alive_is_found() -> None:
    synthetic = run_with(
        start, lambda synthetic: synthetic.finish(TASK, "lost", "waiting", reason="node_lost")
    )
    assert messages(synthetic, 6) == ["attempt 1 (token 1) was lost while its node was alive"]


@pytest.mark.parametrize(("seconds", "violations"), [(10, 1), (14, 0)])
def test_a_lease_of_a_node_that_ends_before_its_time_is_found(
    seconds: float, violations: int
) -> None:
    synthetic = run_with()
    synthetic.note(what="renewal", op="update", incarnation=1)
    synthetic.wait(seconds)
    synthetic.note(what="incarnation", op="update", incarnation=1, status="ended", reason="expired")
    assert len(messages(synthetic, 6)) == violations
    synthetic.faults.append(
        FaultInterval(kind="database_clock", began=synthetic.now - 5, healed=synthetic.now)
    )
    assert messages(synthetic, 6) == []
    synthetic.note(what="renewal", op="update", incarnation=1)
    assert messages(synthetic, 6)[-1] == "incarnation 1 was renewed after its end"


@pytest.mark.parametrize(("late", "lasted", "violations"), [(0.13, 15.0, 0), (0.13, 14.8, 1)])
def test_a_renewal_counts_from_the_time_that_it_was_computed_from(
    late: float, lasted: float, violations: int
) -> None:
    synthetic = run_with()
    synthetic.note(what="renewal", op="update", incarnation=1, computed_ago=late)
    synthetic.wait(lasted - late - 1)
    synthetic.note(what="incarnation", op="update", incarnation=1, status="ended", reason="expired")
    assert len(messages(synthetic, 6)) == violations


@pytest.mark.parametrize(("began", "healed"), [(0.009, 9.0), (-20.0, -11.009)])
def test_a_clock_that_steps_as_a_lease_begins_or_ends_excuses_its_end(
    began: float, healed: float
) -> None:
    synthetic = run_with()
    synthetic.note(what="renewal", op="update", incarnation=1)
    synthetic.wait(10)
    synthetic.note(what="incarnation", op="update", incarnation=1, status="ended", reason="expired")
    for apart, violations in ((0.0, 0), (0.2, 1)):
        sign = 1 if began > 0 else -1
        synthetic.faults = [
            FaultInterval(
                kind="database_clock",
                began=synthetic.now + began + sign * apart,
                healed=synthetic.now + healed + sign * apart,
            )
        ]
        assert len(messages(synthetic, 6)) == violations


def test_an_end_that_is_journaled_late_does_not_lengthen_a_lease() -> None:
    synthetic = run_with()
    synthetic.note(what="renewal", op="update", incarnation=1)
    synthetic.wait(15.1 - 1)
    ended = {"what": "incarnation", "op": "update", "status": "ended", "reason": "expired"}
    synthetic.note(**ended, incarnation=1, computed_ago=0.5)
    assert messages(synthetic, 6) == ["incarnation 1 expired 14.60 s after it was renewed"]


def test_a_token_that_does_not_rise_for_the_task_that_sees_it_is_found() -> None:
    synthetic = run_with(failed, lease, lambda synthetic: synthetic.write("start", TASK, token=1))
    assert messages(synthetic, 6) == ["got token 1 after token 1"]


def test_an_entry_of_an_attempt_after_a_later_one_has_started_is_found() -> None:
    synthetic = run_with(lost, run, lambda synthetic: synthetic.write("beat", TASK, token=1))
    assert messages(synthetic, 7) == ["token 1 wrote after token 2 started"]


def test_an_attempt_that_begins_twice_is_found() -> None:
    synthetic = run_with(run, lambda synthetic: synthetic.write("start", TASK))
    assert messages(synthetic, 7) == ["token 1 started twice"]


@pytest.mark.parametrize(("after_thaw", "violations"), [(0.5, 0), (3.0, 1)])
def test_a_thawed_node_has_a_second_to_kill_its_lost_attempts(
    after_thaw: float, violations: int
) -> None:
    synthetic = run_with(lost, run)
    thawed = synthetic.now + 60
    synthetic.faults.append(
        FaultInterval(kind="node_frozen", host="node-1", began=synthetic.now - 20, healed=thawed)
    )
    synthetic.now = thawed + after_thaw - 1
    synthetic.write("beat", TASK, token=1, node="node-1")
    assert len(messages(synthetic, 7)) == violations
    synthetic.faults[0] = msgspec.structs.replace(synthetic.faults[0], host="node-2")
    assert len(messages(synthetic, 7)) == 1


@pytest.mark.parametrize(("early", "violations"), [(0.009, 0), (0.2, 1)])
def test_an_entry_before_a_freeze_is_excused_only_within_the_tolerance_of_the_clocks(
    early: float, violations: int
) -> None:
    synthetic = run_with(
        lost, run, lambda synthetic: synthetic.write("beat", TASK, token=1, node="node-1")
    )
    began = synthetic.now + early
    synthetic.faults.append(
        FaultInterval(kind="node_frozen", host="node-1", began=began, healed=began + 60)
    )
    assert len(messages(synthetic, 7)) == violations


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
    synthetic = run_with(lost, done)
    synthetic.attempts[-1] = msgspec.structs.replace(synthetic.attempts[-1], **change)
    assert messages(synthetic, 8) == [message]


def test_a_task_that_is_retried_too_often_is_found() -> None:
    synthetic = run_with()
    for _ in range(3):
        failed(synthetic)
    assert messages(synthetic, 8) == ["is waiting although it had to fail"]
    run(synthetic)
    synthetic.finish(TASK, "failed", "failed")
    assert messages(synthetic, 8) == ["has 4 failures, and 3 are allowed"]


def test_a_task_that_fails_too_early_is_found() -> None:
    synthetic = run_with(lease, lambda synthetic: synthetic.finish(TASK, "lost", "failed"))
    assert messages(synthetic, 8) == ["failed without a cause (None)"]


@pytest.mark.parametrize(
    ("losses", "violations"), [(2, ["failed without a cause (lost_at_start)"]), (3, [])]
)
def test_a_task_may_fail_after_three_incarnations_were_lost_with_it(
    losses: int, violations: list[str]
) -> None:
    synthetic = run_with(*[lost] * (losses - 1), lease)
    synthetic.finish(TASK, "lost", "failed")
    synthetic.ends[TASK] = msgspec.structs.replace(synthetic.ends[TASK], reason="lost_at_start")
    synthetic.attempts = [
        msgspec.structs.replace(row, incarnation_id=row.attempt) for row in synthetic.attempts
    ]
    assert messages(synthetic, 8) == violations


def test_a_failed_task_that_is_no_dead_letter_is_found() -> None:
    synthetic = SyntheticRun()
    synthetic.submit(TASK, on_lost="fail")
    synthetic.lease(TASK)
    synthetic.finish(TASK, "lost", "failed")
    assert messages(synthetic, 8) == []
    synthetic.dead_letters.clear()
    assert messages(synthetic, 8) == ["has failed and is no dead letter"]


def test_leases_beyond_the_capacity_of_a_node_are_found() -> None:
    synthetic = SyntheticRun()
    for task in (1, 2, 3):
        synthetic.submit(task)
        synthetic.lease(task)
    assert messages(synthetic, 11) == ["incarnation 1 was leased {'cpu_milli': 500} too much"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, []),
        ({"max_running": 2}, []),
        ({"max_running": 1}, ["2 tasks run, and 1 may"]),
        ({"max_resources": {"cpu_milli": 1000}}, []),
        ({"max_resources": {"cpu_milli": 900}}, ["1000 cpu_milli are leased, and 900 may be"]),
    ],
)
def test_a_tenant_above_its_quota_is_found(limits: dict[str, Any], expected: list[str]) -> None:
    synthetic = SyntheticRun()
    synthetic.tenants = [TenantRow(id=1, **limits), TenantRow(id=2, max_running=1)]
    for task in (1, 2):
        synthetic.submit(task)
        synthetic.lease(task)
    synthetic.submit(3, tenant_id=2)
    synthetic.lease(3)
    assert messages(synthetic, 12) == expected


def test_ended_tasks_do_not_count_against_the_quota() -> None:
    synthetic = run_with()
    synthetic.tenants = [TenantRow(id=1, max_running=1)]
    for step in (failed, lost, done):
        step(synthetic)
    synthetic.submit(8)
    synthetic.lease(8)
    assert messages(synthetic, 12) == []


def test_tasks_above_the_limit_of_a_concurrency_key_are_found() -> None:
    synthetic = run_with(lease)
    synthetic.keys = {1: {"key": "k", "limit": 1}}
    assert messages(synthetic, 12) == []
    synthetic.submit(8)
    synthetic.lease(8)
    assert messages(synthetic, 12) == ["2 tasks run with a key that allows 1"]


def test_executions_beyond_the_capacity_of_a_node_are_found() -> None:
    synthetic = SyntheticRun()
    for task in (1, 2):
        synthetic.submit(task)
        synthetic.lease(task)
        synthetic.write("start", task, cpu_milli=600)
    assert messages(synthetic, 11) == []
    for task in (1, 2):
        synthetic.write("end", task)
    [message] = messages(synthetic, 11)
    assert message.startswith("node-1 ran 1200 of 1000 m cpu")


def test_a_key_that_stands_for_two_tasks_is_found() -> None:
    synthetic = SyntheticRun()
    for task in (1, 2):
        synthetic.store(task, idempotency_key="k")
        synthetic.call("submit", key="k", result={"id": str(task)})
    assert messages(synthetic, 13) == [
        "the key 'k' stands for the tasks [1, 2]",
        "the key 'k' gave [1], then [2]",
    ]


def test_a_key_that_is_accepted_with_another_body_is_found() -> None:
    synthetic = SyntheticRun()
    synthetic.store(TASK, idempotency_key="k")
    for body in ("a", "b"):
        synthetic.call("submit", key="k", result={"id": "7"}, args={"source": body})
    assert messages(synthetic, 13) == ["2 different bodies were accepted as 'k'"]


def test_a_lease_after_an_acknowledged_cancellation_is_found() -> None:
    synthetic = run_with(cancelled, lease)
    assert messages(synthetic, 14) == ["was leased 1.00 s after its cancellation was acknowledged"]


def test_a_cancelled_task_that_ends_otherwise_is_found() -> None:
    synthetic = run_with(run, cancelled, lambda synthetic: synthetic.finish(TASK))
    assert messages(synthetic, 14) == ["ended done although its cancellation was acknowledged"]


def test_a_cancelled_task_that_runs_beyond_the_grace_is_found_unless_a_fault_excuses_it() -> None:
    synthetic = run_with(run, cancelled)
    acknowledged_at = synthetic.now
    synthetic.wait(20)
    synthetic.write("beat", TASK)
    assert messages(synthetic, 14) == ["ran 21.0 s after its cancellation was acknowledged"]
    synthetic.faults.append(
        FaultInterval(kind="partition", began=acknowledged_at + 2, healed=acknowledged_at + 3)
    )
    assert messages(synthetic, 14) == []


def test_an_attempt_that_outruns_its_cap_is_found_unless_its_node_was_frozen() -> None:
    synthetic = SyntheticRun()
    synthetic.submit(TASK, execution_cap=5.0)
    synthetic.lease(TASK)
    synthetic.write("start", TASK)
    since = synthetic.now
    synthetic.wait(19)
    synthetic.write("beat", TASK)
    assert messages(synthetic, 15) == ["attempt 1 ran 20.0 s of 16.0 s"]
    freeze = FaultInterval(kind="node_frozen", host="node-2", began=since, healed=since + 5)
    synthetic.faults.append(freeze)
    assert len(messages(synthetic, 15)) == 1
    synthetic.faults[0] = msgspec.structs.replace(freeze, host="node-1")
    assert messages(synthetic, 15) == []


@pytest.mark.parametrize(
    ("outcome", "seconds", "message"),
    [
        ("succeeded", 9.0, "attempt 1 is succeeded after 9.0 s"),
        ("capped", 2.0, "attempt 1 was capped after only 2.0 s"),
    ],
)
def test_an_attempt_with_a_wrong_outcome_is_found(
    outcome: str, seconds: float, message: str
) -> None:
    synthetic = SyntheticRun()
    synthetic.submit(TASK, execution_cap=5.0)
    run(synthetic)
    synthetic.finish(TASK, outcome, "waiting")
    synthetic.attempts[0] = msgspec.structs.replace(synthetic.attempts[0], wall_seconds=seconds)
    assert messages(synthetic, 15) == [message]
    synthetic.faults.append(
        FaultInterval(kind="database_clock", began=synthetic.now - 1, healed=synthetic.now)
    )
    assert messages(synthetic, 15) == ([] if outcome == "capped" else [message])


def test_a_term_that_does_not_rise_is_found() -> None:
    synthetic = run_with(lambda synthetic: synthetic.begin_term(3))
    assert messages(synthetic, 17) == ["term 3 came after term 1"]


def test_a_lease_of_an_old_term_after_a_new_one_is_found() -> None:
    synthetic = run_with(
        lambda synthetic: synthetic.begin_term(2), lambda synthetic: synthetic.lease(TASK, term=1)
    )
    assert messages(synthetic, 17) == ["leased in term 1, during term 2"]


def test_a_read_that_goes_back_from_the_end_is_found() -> None:
    synthetic = run_with(done)
    for status in ("done", "running"):
        synthetic.call("get", result={"id": "7", "status": status})
    assert messages(synthetic, 18) == ["was read as running after it had been read as done"]


def test_an_end_that_was_shown_and_is_not_in_the_database_is_found() -> None:
    synthetic = run_with(run)
    synthetic.call("wait", result={"id": "7", "status": "done"})
    assert messages(synthetic, 18) == ["was read as done, but is not ended"]


def test_a_remaining_task_is_found_in_the_quiet_phase() -> None:
    synthetic = run_with()
    assert messages(synthetic, 20) == []
    assert messages(synthetic, 20, phase="quiet") == ["is still waiting, 0 s after it was ready"]
    lease(synthetic)
    assert messages(synthetic, 20, phase="quiet") == ["still runs (attempt 1)"]


def test_an_expired_lease_is_found_in_the_quiet_phase() -> None:
    synthetic = run_with(done)
    synthetic.incarnations[1] = msgspec.structs.replace(synthetic.incarnations[1], is_late=True)
    assert messages(synthetic, 20, phase="quiet") == [
        "the lease of incarnation 1 expired and was not ended"
    ]
