from datetime import UTC, datetime, timedelta

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.task import Status
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts

NOW = datetime(2027, 1, 31, 19, 2, tzinfo=UTC)
ONE = Resources(cpu_milli=1000)


def why(*, ahead, next_end=timedelta(0)):
    full = Offer(
        node_id=1,
        incarnation_id=1,
        name="a",
        capacity=ONE,
        free=Resources(),
        used=ONE,
        next_end=next_end,
    )
    facts = Facts(
        status=Status.WAITING,
        attempt=0,
        ready_at=NOW,
        needs=ONE,
        offers=[full],
        ahead=ahead,
        now=NOW,
    )
    return explain(facts)


def test_a_task_that_waits_for_room_is_told_its_position():
    assert why(ahead=0).message == "Waiting for 1 CPU to become free on node a. It is next in line."
    reason = why(ahead=3)
    assert reason.message == (
        "Waiting for 1 CPU to become free on node a. 3 tasks of its tenant with the same needs are "
        "ahead."
    )
    assert reason.details["position"] == 4


def test_a_task_that_waits_for_room_is_told_when_the_next_one_ends():
    reason = why(ahead=0, next_end=timedelta(minutes=3))
    assert reason.message == (
        "Waiting for 1 CPU to become free on node a. The next running task there ends at "
        "2027-01-31T19:05:00Z at the latest. It is next in line."
    )
    assert reason.details["next_end"] == "2027-01-31T19:05:00Z"


def test_a_position_that_was_not_counted_is_not_told():
    assert why(ahead=None).message == "Waiting for 1 CPU to become free on node a."
