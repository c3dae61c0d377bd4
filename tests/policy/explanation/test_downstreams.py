from datetime import UTC, datetime, timedelta

from duly.model.node import Offer
from duly.model.queues.downstream import Downstream
from duly.model.resources import Resources
from duly.model.task import Reason, Status
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)
CAPACITY = Resources(cpu_milli=4000, memory_mb=8192)
NODE = Offer(
    node_id=1, incarnation_id=1, name="a", capacity=CAPACITY, free=CAPACITY, labels={},
    draining=False,
)  # fmt: skip


def why(limit, running=0, ahead=None, **others):
    fields = {"id": 1, "tenant_id": 7, "key": "stripe", "rate": None, "concurrency": None}
    downstream = Downstream(**{**fields, "adaptive": True, **limit})
    facts = Facts(
        status=Status.WAITING, attempt=0, ready_at=NOW, needs=Resources(cpu_milli=500), now=NOW,
        offers=[NODE], uses=["stripe"], downstreams=[(downstream, running)], ahead=ahead, **others,
    )  # fmt: skip
    return explain(facts)


def test_a_task_waits_for_others_that_call_the_same():
    reason = why({"concurrency": 2}, running=2, ahead=3)
    assert reason.code == "downstream_limit"
    assert reason.message == (
        "2 tasks that use 'stripe' are running; at most 2 may run at once. 3 tasks of its "
        "tenant with the same needs are ahead."
    )
    assert reason.details == {
        "key": "stripe", "defined_by": "tenant", "rate": None, "concurrency": 2, "running": 2,
        "position": 4,
    }  # fmt: skip


def test_a_lowered_limit_is_said_to_be_lowered():
    reason = why({"concurrency": 20, "factor": 0.5, "tenant_id": None}, running=10)
    assert reason.message == (
        "10 tasks that use 'stripe' (shared by tenants) are running; at most 10 may run at once "
        "instead of 20 since it throttled calls."
    )


def test_a_pause_is_told_with_its_end():
    reason = why({"concurrency": 2, "retry_at": NOW + timedelta(seconds=2)})
    assert (
        "'stripe' throttles calls, and is called again at 2027-01-31T06:30:02Z." in reason.message
    )
    assert reason.details["until"] == "2027-01-31T06:30:02Z"


def test_a_rate_is_told_with_the_expected_start():
    reason = why({"rate": 0.5}, ahead=2)
    assert (reason.code, reason.details["until"]) == ("downstream_limit", "2027-01-31T06:30:06Z")
    assert reason.message.startswith("At most 30/m of the tasks that use 'stripe' may start.")


def test_what_is_not_at_its_limit_is_no_reason():
    assert why({"concurrency": 2}, running=1).code == "not_its_turn"


def test_the_backoff_of_a_throttled_attempt_is_told_as_such():
    stored = Reason("throttled", "Throttled by stripe (exit code 75).", {"keys": ["stripe"]})
    facts = Facts(status=Status.SCHEDULED, attempt=1, ready_at=NOW, needs=CAPACITY, stored=stored)
    reason = explain(facts)
    assert reason.code == "throttled"
    assert "Attempt 2 is scheduled to start at 2027-01-31T06:30:00Z." in reason.message
