from datetime import UTC, datetime

import pytest

from duly.model.node import Absence, AbsentNode, NodeProfile, Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.model.task import Status
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.no_fitting_node import never_fits

NOW = datetime(2027, 1, 31, 19, 2, tzinfo=UTC)
SMALL = Resources(cpu_milli=500)
LARGE = Resources(cpu_milli=8000)
ZONE = {"zone": "c"}


def absent(absence=Absence.LOST, name="node-c", capacity=LARGE, labels=ZONE):
    return AbsentNode(name, capacity, dict(labels), absence, NOW)


def connected():
    capacity = Resources(cpu_milli=1000)
    return Offer(node_id=1, incarnation_id=1, name="node-a", capacity=capacity, free=capacity)


def why(*nodes, needs=SMALL, requires=(), offers=None):
    facts = Facts(
        status=Status.WAITING,
        attempt=0,
        ready_at=NOW,
        needs=needs,
        requires=dict(requires),
        offers=[connected()] if offers is None else offers,
        absent=nodes,
    )
    reason = explain(facts)
    return reason.code, reason.message


@pytest.mark.parametrize(
    ("absence", "code", "message"),
    [
        (
            Absence.LOST,
            "node_down",
            "Node node-c has the label zone=c but has been down since 2027-01-31T19:02:00Z. Start "
            "its agent.",
        ),
        (
            Absence.STOPPED,
            "node_down",
            "Node node-c has the label zone=c but has been stopped since 2027-01-31T19:02:00Z. "
            "Start its agent.",
        ),
        (
            Absence.STOPPING,
            "node_down",
            "Node node-c has the label zone=c but is being stopped. Start its agent.",
        ),
        (
            Absence.REMOVED,
            "node_removed",
            "Node node-c had the label zone=c but was removed at 2027-01-31T19:02:00Z. Add a node "
            "that can run the task.",
        ),
    ],
)
def test_a_node_with_the_label_that_is_absent_is_named(absence, code, message):
    assert why(absent(absence), requires=ZONE) == (code, message)


def test_a_large_enough_node_that_is_down_is_named():
    assert why(absent(), needs=LARGE) == (
        "node_down",
        "Node node-c is large enough but has been down since 2027-01-31T19:02:00Z. Start its "
        "agent.",
    )


def test_a_node_that_is_down_comes_before_one_that_was_removed():
    removed = absent(Absence.REMOVED, "node-b")
    assert "node-c" in why(removed, absent(), requires=ZONE)[1]


def test_other_nodes_like_it_are_counted():
    nodes = [absent(), absent(name="node-d"), absent(name="node-e")]
    assert (
        ", like 2 other nodes that could run it. Start its agent." in why(*nodes, requires=ZONE)[1]
    )


def test_a_node_that_is_down_and_could_not_run_the_task_is_not_named():
    assert why(absent(labels={}), requires=ZONE)[0] == "no_node_has_label"
    assert why(absent(capacity=SMALL), needs=LARGE)[0] == "no_node_can_fit"


def test_without_any_connected_node_the_one_that_is_down_is_named():
    assert why(absent(), offers=[])[0] == "node_down"
    assert why(offers=[])[0] == "no_nodes"


def test_a_task_that_fails_because_its_node_was_removed_says_so():
    reason = never_fits(Shape(SMALL, ZONE), [NodeProfile(LARGE)], [absent(Absence.REMOVED)])
    assert reason.code == "node_removed"
