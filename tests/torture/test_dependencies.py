"""The invariant about dependencies rejects what is made up to break it, and nothing else."""

import msgspec
import pytest

from tests.torture.invariants import judge
from tests.torture.synthetic_run import TASK, SyntheticRun, done, failed, judged, run, told

DEPENDANT = 8


def given_up(story: SyntheticRun) -> None:
    for _ in range(2):
        failed(story)
    run(story)
    story.finish(TASK, "failed", "failed")


def go_on(story: SyntheticRun) -> None:
    story.release(DEPENDANT)
    story.lease(DEPENDANT)
    story.run(DEPENDANT)
    story.finish(DEPENDANT)


def never(story: SyntheticRun) -> None:
    story.end(DEPENDANT, "cancelled", reason="upstream_failed")


def blocked(*tellings, on="success"):
    return told(lambda story: story.block(DEPENDANT, TASK, on), *tellings)


@pytest.mark.parametrize(
    ("on", "tellings"),
    [
        ("success", [done, go_on]),
        ("success", [given_up, never]),
        ("failure", [given_up, go_on]),
        ("failure", [done, never]),
        ("always", [done, go_on]),
        ("always", [given_up, go_on]),
    ],
)
def test_a_dependant_that_does_as_its_edge_says_is_accepted(on, tellings):
    assert judge(blocked(*tellings, on=on).evidence(phase="quiet")) == []


def test_a_dependant_that_starts_before_its_upstream_has_ended_is_found():
    early = [f"was leased before {TASK} had ended, for which it waits"]
    assert judged(blocked(go_on), 10) == early
    assert judged(blocked(go_on, done), 10) == early


@pytest.mark.parametrize(("on", "how"), [("success", given_up), ("failure", done)])
def test_a_dependant_that_starts_although_its_upstream_ended_otherwise_is_found(on, how):
    [message] = judged(blocked(how, go_on, on=on), 10)
    assert message.startswith(f"was leased although {TASK} ended ")
    assert message.endswith(f"and it was to wait for its {on}")


def test_a_dependant_that_is_given_up_without_a_cause_is_found():
    story = blocked(done, never)
    assert judged(story, 10) == [
        "was given up for an upstream, and none of them has ended otherwise than asked"
    ]


def test_a_dependant_that_waits_for_what_has_ended_is_found_once_all_is_quiet():
    story = blocked(done)
    assert judged(story, 10) == []
    assert judged(story, 10, phase="quiet") == [
        "is still blocked, and all that it waits for has ended"
    ]


def test_an_edge_that_was_acknowledged_and_is_not_stored_is_found():
    story = blocked()
    story.edges = [msgspec.structs.replace(story.edges[0], condition="always")]
    assert judged(story, 10) == [f"it was to wait for [{TASK}], which is not stored"]
    story.edges = []
    assert judged(story, 10) == [f"it was to wait for [{TASK}], which is not stored"]


def test_an_edge_of_a_batch_is_known_by_its_ref():
    story = blocked()
    asked = [{"ref": "a"}, {"ref": "b", "depends_on": [{"task": "a", "on": "success"}]}]
    ids = [str(TASK), str(DEPENDANT)]
    story.call("batch", key="k", args={"tasks": asked}, result={"ids": ids})
    assert judged(story, 10) == []
    story.edges = []
    assert len(judged(story, 10)) == 2
