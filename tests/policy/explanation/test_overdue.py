from datetime import UTC, datetime, timedelta

import pytest

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.model.task import Status
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.overdue import cancelled_overdue, retry_after

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)
TOLERANCE = timedelta(minutes=5)
SHAPE = Shape(Resources(cpu_milli=2000, memory_mb=256))


def offer(cpu, free, *, next_end=0, draining=False):
    capacity = Resources(cpu_milli=cpu * 1000, memory_mb=8192)
    left = Resources(cpu_milli=free * 1000, memory_mb=8192)
    return Offer(
        node_id=1,
        incarnation_id=1,
        name="a",
        capacity=capacity,
        free=left,
        used=capacity.plus(left, -1),
        next_end=timedelta(seconds=next_end),
        draining=draining,
    )


@pytest.mark.parametrize(
    ("offers", "seconds"),
    [
        ([], 300),
        ([offer(4, 1, next_end=70), offer(4, 0, next_end=30)], 30),
        ([offer(1, 0, next_end=10), offer(4, 0, next_end=30)], 30),
        ([offer(4, 0, next_end=30, draining=True)], 300),
        ([offer(4, 2, next_end=30)], 300),
        ([offer(4, 1)], 300),
    ],
)
def test_the_time_to_try_again_is_the_next_end_in_the_way_or_else_the_tolerance(offers, seconds):
    assert retry_after(SHAPE, offers, TOLERANCE) == timedelta(seconds=seconds)


def test_an_expected_end_goes_before_the_one_by_the_cap():
    busy = [offer(4, 0, next_end=86_340)]
    ends = {busy[0].incarnation_id: timedelta(seconds=30), 7: timedelta(seconds=1)}
    assert retry_after(SHAPE, busy, TOLERANCE, ends) == timedelta(seconds=30)
    reason = cancelled_overdue(SHAPE, busy, NOW, TOLERANCE, ends)
    assert reason.message.endswith("Try again in 30 s.")


def test_a_cancelled_task_is_told_what_was_short_and_when_to_try_again():
    reason = cancelled_overdue(SHAPE, [offer(4, 1, next_end=70.2)], NOW, TOLERANCE)
    assert reason.code == "overdue"
    assert reason.message == (
        "It could not start by 2027-01-31T06:30:00Z, within its delay tolerance of 5 min: no node "
        "had 2 CPUs free. Try again in 1 min 11 s."
    )
    assert reason.details == {
        "start_by": "2027-01-31T06:30:00Z",
        "retry_after": 71,
        "kinds": ["cpu"],
    }


def waiting(offers, **others):
    return Facts(
        status=Status.WAITING,
        attempt=0,
        ready_at=NOW - 2 * TOLERANCE,
        needs=SHAPE.needs,
        offers=offers,
        now=NOW,
        delay_tolerance=TOLERANCE,
        **others,
    )


def test_an_overdue_task_is_told_since_when_and_what_is_short_or_when_to_try_again():
    since = NOW - TOLERANCE
    busy = [offer(4, 1, next_end=60)]
    assert explain(waiting(busy, overdue_since=since)).message == (
        "Waiting for 2 CPUs to become free on node a. The next running task there ends at "
        "2027-01-31T06:31:00Z at the latest. It has been overdue since 2027-01-31T06:25:00Z."
    )
    behind = explain(waiting([offer(4, 4)], ahead=3, overdue_since=since))
    assert behind.code == "not_its_turn"
    assert behind.message.endswith(
        "It has been overdue since 2027-01-31T06:25:00Z; try again after 2027-01-31T06:35:00Z."
    )
    assert behind.details["retry_after"] == 300


def test_a_task_that_is_not_overdue_is_explained_as_before():
    assert "overdue" not in explain(waiting([offer(4, 1)])).message
