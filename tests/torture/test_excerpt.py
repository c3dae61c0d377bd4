"""The report shows the records around every violation."""

from tests.torture.evidence import FaultInterval
from tests.torture.excerpt import LINES_AFTER, LINES_BEFORE, excerpt
from tests.torture.invariants import judge
from tests.torture.synthetic_run import TASK, SyntheticRun, cancelled, lease, run, run_with


def excerpts(synthetic: SyntheticRun) -> list[list[str]]:
    evidence = synthetic.evidence()
    return [
        [line.strip().split("  ", 1)[1] for line in excerpt(evidence, violation)]
        for violation in judge(evidence)
    ]


def test_the_steps_calls_and_faults_around_a_violation_are_shown_in_order() -> None:
    synthetic = run_with(cancelled, lease)
    synthetic.faults.append(
        FaultInterval(kind="partition", host="node-1", began=1, healed=synthetic.now - 1.5)
    )
    assert excerpts(synthetic) == [
        [
            "fault    partition node-1 begins",
            "journal  live insert: waiting (attempt 0)",
            "client   submit asked ( 0)",
            "client   submit answered ok ( 0)",
            "client   cancel asked ( 1)",
            "fault    partition node-1 is healed",
            "client   cancel answered ok ( 1)",
            "journal  live update: running (attempt 1, token 1)",
        ]
    ]


def test_renewals_of_a_node_are_shown_with_their_clock_readings() -> None:
    synthetic = run_with()
    synthetic.note(what="renewal", op="update", incarnation=1, computed_ago=0.13)
    ended = {"what": "incarnation", "op": "update", "status": "ended", "reason": "expired"}
    synthetic.note(**ended, incarnation=1)
    assert excerpts(synthetic) == [
        [
            "journal  incarnation insert: 1 alive",
            "journal  renewal update: 1, computed 0.130 s before",
            "journal  incarnation update: 1 ended expired",
        ]
    ]


def test_records_far_from_a_violation_are_omitted() -> None:
    synthetic = run_with(run)
    for _ in range(50):
        synthetic.call("get", result={"id": str(TASK), "status": "running"})
    synthetic.finish(TASK, attempt=2)
    for _ in range(50):
        synthetic.call("get", result={"id": str(TASK), "status": "done"})
    evidence = synthetic.evidence()
    [violation, *_] = [candidate for candidate in judge(evidence) if candidate.at is not None]
    assert len(excerpt(evidence, violation)) == LINES_BEFORE + LINES_AFTER
