from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.model.limits import Limits
from duly.model.node import Offer
from duly.model.queues.peak import PeakState
from duly.model.queues.queue import Queue
from duly.model.resources import Resources
from duly.model.shape import Concurrency, Shape
from duly.model.task import Reason, Status
from duly.policy.budget.limits import KeyUsage, TenantUsage, blocking_limit
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts
from duly.policy.placement import fits

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)
HALF = Resources(cpu_milli=500, memory_mb=256)
PEAK = PeakState({"cpu_milli": NOW - timedelta(hours=2)})


def offer(cpu, free=None, *, draining=False, name="a", labels=()):
    capacity = Resources(cpu_milli=int(cpu * 1000), memory_mb=16_384, disk_mb=65_536)
    left = capacity if free is None else replace(capacity, cpu_milli=int(free * 1000))
    return Offer(
        node_id=1,
        incarnation_id=1,
        name=name,
        capacity=capacity,
        free=left,
        used=capacity.plus(left, -1),
        labels=dict(labels),
        draining=draining,
    )


def facts(status=Status.WAITING, **others):
    return Facts(**{"status": status, "attempt": 0, "ready_at": NOW, "needs": HALF, **others})


FAILED = Reason("exit_code", "Exit code 3.")


@pytest.mark.parametrize(
    ("case", "code", "message"),
    [
        (facts(Status.SCHEDULED), "not_due", "Scheduled to start at 2027-01-31T06:30:00Z."),
        (
            facts(Status.SCHEDULED, attempt=2, stored=FAILED),
            "retry_backoff",
            "Attempt 2 failed: exit code 3. Attempt 3 is scheduled to start at "
            "2027-01-31T06:30:00Z.",
        ),
        (facts(), "no_nodes", "No node is connected. Start one with 'duly agent'."),
        (
            facts(needs=Resources(cpu_milli=64_000), offers=[offer(4), offer(8, name="big")]),
            "no_node_can_fit",
            "No node is large enough: it needs 64 CPUs; the largest node has 8.",
        ),
        (
            facts(requires={"zone": "b"}, offers=[offer(4, labels={"zone": "a"}), offer(4)]),
            "no_node_has_label",
            "No node has the label zone=b, which it requires.",
        ),
        (
            facts(requires={"zone": "a", "os": "x"}, offers=[offer(4, labels={"zone": "a"})]),
            "no_node_has_label",
            "No node has the label os=x and all others that it requires.",
        ),
        (
            facts(requires={"zone": "a"}, offers=[offer(0.1, labels={"zone": "a"}), offer(4)]),
            "no_node_can_fit",
            "No node is large enough: it needs 0.5 CPU; the largest node has 0.1.",
        ),
        (
            facts(offers=[offer(4, 0.25), offer(4, 0), offer(2, 0.1)]),
            "no_capacity",
            "Waiting for 0.5 CPU to become free on any of 3 nodes.",
        ),
        (
            facts(offers=[offer(4, 0)]),
            "no_capacity",
            "Waiting for 0.5 CPU to become free on node a.",
        ),
        (
            facts(
                offers=[offer(4, 1), offer(4, 0)],
                queue=Queue.OFF_PEAK,
                start_by=NOW + timedelta(minutes=1, hours=1),
                now=NOW,
                peak=PEAK,
            ),
            "off_peak",
            "It has been peak time since 2027-01-31T04:30:00Z: 87 % of the CPU of all nodes is in "
            "use; off_peak tasks wait until it is 70 % or less, or until 2027-01-31T07:30:00Z.",
        ),
        (
            facts(offers=[offer(4, 1)], start_by=NOW + timedelta(hours=7), now=NOW, peak=PEAK),
            "postponed",
            "It has been peak time since 2027-01-31T04:30:00Z: 75 % of the CPU of all nodes is in "
            "use; tasks with more than 6 h of slack wait until it is 70 % or less, or until "
            "2027-01-31T07:30:00Z.",
        ),
        (
            facts(
                needs=Resources(memory_mb=1),
                offers=[offer(4, 1)],
                start_by=NOW + timedelta(hours=7),
                now=NOW,
                peak=PEAK,
            ),
            "not_its_turn",
            "There is room for it: it starts in a moment, unless that room is kept for a larger "
            "task that must start earlier.",
        ),
        (
            facts(offers=[offer(20, 1)], queue=Queue.DELAYABLE, peak=PEAK),
            "headroom",
            "It has been peak time since 2027-01-31T04:30:00Z, and the room that is left, 5 % of "
            "the fleet, is kept for urgent tasks of tenants below their fair share. It starts when "
            "other tasks end, or when it must start within 1 min.",
        ),
        (
            facts(offers=[offer(20, 1)], queue=Queue.URGENT, peak=PEAK),
            "not_its_turn",
            "There is room for it: it starts in a moment, unless that room is kept for a larger "
            "task that must start earlier.",
        ),
        (
            facts(offers=[offer(4, 0)], queue=Queue.URGENT, peak=PEAK),
            "no_capacity",
            "Waiting for 0.5 CPU to become free on node a.",
        ),
        (
            facts(offers=[offer(4, 1)], queue=Queue.OFF_PEAK, start_by=NOW),
            "not_its_turn",
            "There is room for it: it starts in a moment, unless that room is kept for a larger "
            "task that must start earlier.",
        ),
        (
            facts(offers=[offer(4, draining=True), offer(0.1)]),
            "nodes_draining",
            "The only node that could run it is being drained and takes no new tasks.",
        ),
        (
            facts(offers=[offer(4)], ahead=7),
            "not_its_turn",
            "7 tasks of its tenant with the same needs must start earlier and go first.",
        ),
        (
            facts(offers=[offer(4)]),
            "not_its_turn",
            "There is room for it: it starts in a moment, unless that room is kept for a larger "
            "task that must start earlier.",
        ),
        (
            facts(limits=Limits(1, is_suspended=True), use=TenantUsage(1)),
            "tenant_suspended",
            "Its tenant is suspended, so none of its tasks start. An administrator can resume it.",
        ),
        (
            facts(offers=[offer(4, 0)], limits=Limits(3), use=TenantUsage(3)),
            "tenant_limit",
            "3 tasks of its tenant are running; the plan allows 3 at once.",
        ),
        (
            facts(
                offers=[offer(4)],
                limits=Limits(None, {"cpu_milli": 1000}),
                use=TenantUsage(1, Resources(cpu_milli=750)),
            ),
            "tenant_limit",
            "It needs 0.5 CPU; the plan allows 1 at once, and its tenant uses 0.75.",
        ),
        (
            facts(offers=[offer(4)], limits=Limits(None, {"memory_mb": 100})),
            "tenant_limit",
            "It needs 256 MiB of memory; the plan allows 100 MiB at once, and its tenant uses 0 "
            "MiB.",
        ),
        (
            facts(
                offers=[offer(4)],
                concurrency=Concurrency("customer-7", 2),
                under_key=KeyUsage(1, 1),
            ),
            "concurrency_limit",
            "1 task with the concurrency key 'customer-7' is running; at most 1 may run at once.",
        ),
        (
            facts(offers=[offer(0.2)], limits=Limits(1), use=TenantUsage(1)),
            "no_node_can_fit",
            "No node is large enough: it needs 0.5 CPU; the largest node has 0.2.",
        ),
        (
            facts(Status.RUNNING, node="a", leased_at=NOW),
            "running",
            "Running on a since 2027-01-31T06:30:00Z.",
        ),
        (
            facts(Status.RUNNING, node="a", leased_at=NOW, cancel_requested_at=NOW),
            "cancel_requested",
            "Being stopped on a: it was cancelled at 2027-01-31T06:30:00Z.",
        ),
        (facts(Status.DONE), "done", "It is done."),
        (facts(Status.FAILED, stored=FAILED), "exit_code", "Exit code 3."),
        (facts(Status.CANCELLED), "cancelled", "It was cancelled."),
    ],
)
def test_each_situation_has_its_reason(case, code, message):
    reason = explain(case)
    assert (reason.code, reason.message) == (code, message)


@pytest.mark.parametrize(
    ("case", "details"),
    [
        (
            facts(needs=Resources(cpu_milli=64_000), offers=[offer(4), offer(8, name="big")]),
            {"kind": "cpu", "needed": 64.0, "largest": 8.0, "node": "big"},
        ),
        (facts(offers=[offer(4, 0.25)]), {"kinds": ["cpu"], "nodes": 1}),
    ],
)
def test_amounts_are_told_as_requests_have_them(case, details):
    assert explain(case).details == details


amounts = st.builds(
    Resources,
    cpu_milli=st.integers(0, 4000),
    memory_mb=st.integers(0, 4),
    iops=st.integers(0, 2),
    ports=st.integers(0, 2),
    extra=st.dictionaries(st.sampled_from(["gpu", "tpu"]), st.integers(0, 2)),
)
reasons = st.builds(Reason, st.text(min_size=1), st.text())
labels = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)
offers = st.builds(
    lambda name, free, used, labels, draining: Offer(
        node_id=1,
        incarnation_id=1,
        name=name,
        capacity=free.plus(used),
        free=free,
        labels=labels,
        draining=draining,
    ),
    st.text(min_size=1),
    amounts,
    amounts,
    labels,
    st.booleans(),
)
times = st.datetimes(min_value=datetime(2026, 1, 1), max_value=datetime(2200, 1, 1)).map(
    lambda at: at.replace(tzinfo=UTC)
)
situations = st.builds(
    Facts,
    status=st.sampled_from(Status),
    attempt=st.integers(0, 5),
    ready_at=times,
    needs=amounts,
    requires=labels,
    stored=st.none() | reasons,
    node=st.none() | st.text(),
    leased_at=st.none() | times,
    cancel_requested_at=st.none() | times,
    offers=st.lists(offers, max_size=4),
    ahead=st.integers(0, 1000),
    concurrency=st.none() | st.builds(Concurrency, st.text(min_size=1), st.integers(1, 3)),
    limits=st.builds(
        Limits,
        st.none() | st.integers(1, 4),
        st.none() | st.dictionaries(st.sampled_from(["cpu_milli", "gpu"]), st.integers(0, 4000)),
        st.booleans(),
    ),
    use=st.builds(TenantUsage, st.integers(0, 5), amounts),
    under_key=st.builds(KeyUsage, st.integers(0, 3), st.integers(1, 3)),
)


@given(situations)
def test_there_is_always_exactly_one_reason(case):
    reason = explain(case)
    assert isinstance(reason, Reason)
    assert reason.code
    assert reason.message or reason == case.stored


@given(situations)
def test_a_waiting_task_is_told_that_there_is_room_if_and_only_if_it_could_be_placed(case):
    if case.status is Status.WAITING:
        shape = Shape(case.needs, case.requires, case.concurrency)
        could_be_placed = any(fits(shape, one) for one in case.offers)
        barred = blocking_limit(case.limits, case.use, case.under_key, shape)
        told = explain(case).code
        assert (told == "not_its_turn") == (could_be_placed and barred is None)
        if could_be_placed and barred is not None:
            assert told == barred.code


@pytest.mark.parametrize(
    ("reserved", "sentence"),
    [
        (Resources(cpu_milli=1500), " Reservations keep 1.5 CPUs of node a."),
        (Resources(cpu_milli=1000), ""),
        (Resources(memory_mb=512), ""),
    ],
)
def test_reservations_are_named_if_a_node_would_have_room_without_them(reserved, sentence):
    kept = msgspec.structs.replace(offer(2, free=0.5), reserved=reserved)
    waiting = explain(facts(needs=Resources(cpu_milli=2000), offers=[kept]))
    assert waiting.message == f"Waiting for 2 CPUs to become free on node a.{sentence}"
