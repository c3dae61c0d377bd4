"""The invariant of dependencies detects synthetic violations, and accepts correct runs."""

import msgspec
import pytest

from tests.torture.invariants import judge
from tests.torture.synthetic_run import TASK, SyntheticRun, done, failed, messages, run, run_with

DEPENDANT = 8


def failed_for_good(synthetic: SyntheticRun) -> None:
    for _ in range(2):
        failed(synthetic)
    run(synthetic)
    synthetic.finish(TASK, "failed", "failed")


def run_dependant(synthetic: SyntheticRun) -> None:
    synthetic.release(DEPENDANT)
    synthetic.lease(DEPENDANT)
    synthetic.run(DEPENDANT)
    synthetic.finish(DEPENDANT)


def cancel_dependant(synthetic: SyntheticRun) -> None:
    synthetic.end(DEPENDANT, "cancelled", reason="upstream_failed")


def run_with_dependant(*steps, on="success"):
    return run_with(lambda synthetic: synthetic.block(DEPENDANT, TASK, on), *steps)


@pytest.mark.parametrize(
    ("on", "steps"),
    [
        ("success", [done, run_dependant]),
        ("success", [failed_for_good, cancel_dependant]),
        ("failure", [failed_for_good, run_dependant]),
        ("failure", [done, cancel_dependant]),
        ("always", [done, run_dependant]),
        ("always", [failed_for_good, run_dependant]),
    ],
)
def test_a_dependant_that_follows_its_condition_is_accepted(on, steps):
    assert judge(run_with_dependant(*steps, on=on).evidence(phase="quiet")) == []


def test_a_dependant_that_starts_before_its_upstream_has_ended_is_found():
    violation = [f"was leased before its upstream {TASK} had ended"]
    assert messages(run_with_dependant(run_dependant), 10) == violation
    assert messages(run_with_dependant(run_dependant, done), 10) == violation


@pytest.mark.parametrize(("on", "upstream_end"), [("success", failed_for_good), ("failure", done)])
def test_a_dependant_that_starts_although_its_condition_is_not_met_is_found(on, upstream_end):
    [message] = messages(run_with_dependant(upstream_end, run_dependant, on=on), 10)
    assert message.startswith(f"was leased although {TASK} ended ")
    assert message.endswith(f"and it depends on its {on}")


def test_a_dependant_that_is_cancelled_without_a_cause_is_found():
    synthetic = run_with_dependant(done, cancel_dependant)
    assert messages(synthetic, 10) == [
        "was cancelled because of an upstream, and all of its conditions are met"
    ]


def test_a_dependant_that_stays_blocked_is_found_in_the_quiet_phase():
    synthetic = run_with_dependant(done)
    assert messages(synthetic, 10) == []
    assert messages(synthetic, 10, phase="quiet") == [
        "is still blocked, and all of its upstreams have ended"
    ]


def test_an_edge_that_was_acknowledged_and_is_not_stored_is_found():
    synthetic = run_with_dependant()
    synthetic.edges = [msgspec.structs.replace(synthetic.edges[0], condition="always")]
    assert messages(synthetic, 10) == [f"its dependency on [{TASK}] is not stored"]
    synthetic.edges = []
    assert messages(synthetic, 10) == [f"its dependency on [{TASK}] is not stored"]


def test_an_edge_of_a_batch_is_found_by_its_ref():
    synthetic = run_with_dependant()
    tasks = [{"ref": "a"}, {"ref": "b", "depends_on": [{"task": "a", "on": "success"}]}]
    ids = [str(TASK), str(DEPENDANT)]
    synthetic.call("batch", key="k", args={"tasks": tasks}, result={"ids": ids})
    assert messages(synthetic, 10) == []
    synthetic.edges = []
    assert len(messages(synthetic, 10)) == 2
