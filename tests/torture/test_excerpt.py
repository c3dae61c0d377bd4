"""For every violation the report shows what was written down around it."""

from tests.torture.evidence import FaultInterval
from tests.torture.excerpt import AFTER, BEFORE, excerpt
from tests.torture.invariants import judge
from tests.torture.synthetic_run import TASK, SyntheticRun, cancelled, lease, run, told


def excerpts(story: SyntheticRun) -> list[list[str]]:
    evidence = story.evidence()
    return [
        [line.strip().split("  ", 1)[1] for line in excerpt(evidence, one)]
        for one in judge(evidence)
    ]


def test_the_steps_calls_and_faults_around_a_violation_are_shown_in_order() -> None:
    story = told(cancelled, lease)
    story.troubles.append(
        FaultInterval(kind="partition", host="node-1", began=1, healed=story.now - 1.5)
    )
    assert excerpts(story) == [
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


def test_of_a_node_its_renewals_are_shown_and_when_they_were_computed() -> None:
    story = told()
    story.note(what="renewal", op="update", incarnation=1, computed_ago=0.13)
    ended = {"what": "incarnation", "op": "update", "status": "ended", "reason": "expired"}
    story.note(**ended, incarnation=1)
    assert excerpts(story) == [
        [
            "journal  incarnation insert: 1 alive",
            "journal  renewal update: 1, computed 0.130 s before",
            "journal  incarnation update: 1 ended expired",
        ]
    ]


def test_what_is_far_from_a_violation_is_left_out() -> None:
    story = told(run)
    for _ in range(50):
        story.call("get", result={"id": str(TASK), "status": "running"})
    story.finish(TASK, attempt=2)
    for _ in range(50):
        story.call("get", result={"id": str(TASK), "status": "done"})
    evidence = story.evidence()
    [violation, *_] = [one for one in judge(evidence) if one.at is not None]
    assert len(excerpt(evidence, violation)) == BEFORE + AFTER
