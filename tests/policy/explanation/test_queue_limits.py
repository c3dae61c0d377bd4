"""What a waiting task is told about its queue."""

from datetime import UTC, datetime, time

from msgspec.structs import replace

from duly.model.node import Offer
from duly.model.queues.queue import OpeningHours, Queue, QueueDefinition
from duly.model.resources import Resources
from duly.model.task import Status
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)
TEN = Resources(cpu_milli=10_000, memory_mb=10_000)
BULK = QueueDefinition(name="bulk", level=50)
FACTS = Facts(
    status=Status.WAITING,
    attempt=0,
    ready_at=NOW,
    now=NOW,
    needs=Resources(cpu_milli=1000),
    queue="bulk",
    stored_queue="bulk",
    definition=BULK,
    offers=[Offer(node_id=1, incarnation_id=1, name="a", capacity=TEN, free=TEN)],
    ahead=2,
)


def told(**bounds):
    return explain(replace(FACTS, definition=replace(BULK, **bounds)))


def test_a_paused_queue_is_told_with_who_and_since_when_and_how_to_resume_it():
    reason = told(paused_at=NOW, paused_by="default/kim")
    assert reason.code == "queue_paused"
    assert reason.message == (
        "The queue 'bulk' was paused by default/kim at 2027-01-31T06:30:00Z, so none of its tasks "
        "start. An administrator can resume it with 'duly queue resume bulk'."
    )
    assert reason.details == {
        "queue": "bulk",
        "by": "default/kim",
        "paused_at": "2027-01-31T06:30:00Z",
    }


def test_the_pause_counts_for_a_task_that_is_out_of_slack():
    paused = replace(BULK, paused_at=NOW, paused_by="x")
    late = replace(FACTS, queue=Queue.URGENT, definition=paused)
    assert explain(late).code == "queue_paused"


def test_a_closed_queue_is_told_with_when_it_opens():
    reason = told(hours=OpeningHours(time(22), time(6), "Europe/Berlin"))
    assert reason.code == "queue_closed"
    assert reason.message == (
        "The queue 'bulk' starts tasks only from 22:00 to 06:00 (Europe/Berlin). It opens at "
        "2027-01-31T21:00:00Z."
    )
    assert reason.details["opens_at"] == "2027-01-31T21:00:00Z"
    assert told(hours=OpeningHours(time(6), time(22))).code == "not_its_turn"


def test_a_full_queue_is_told_with_the_figures_and_the_position():
    held = Resources(cpu_milli=2500)
    reason = explain(replace(FACTS, definition=replace(BULK, max_share=0.3), held_by_queue=held))
    assert reason.code == "queue_limit"
    assert reason.message == (
        "It needs 1 CPU; the queue 'bulk' may hold 30 % of the fleet, which is 3, and its running "
        "tasks use 2.5. 2 tasks of its tenant with the same needs are ahead."
    )
    assert reason.details == {
        "queue": "bulk",
        "max_share": 0.3,
        "kind": "cpu",
        "needed": 1,
        "limit": 3,
        "used": 2.5,
        "position": 3,
    }
    assert told(max_share=0.3).code == "not_its_turn"


def test_a_task_larger_than_the_share_is_told_that_it_can_never_start():
    assert "can never start" in told(max_share=0.05).message
