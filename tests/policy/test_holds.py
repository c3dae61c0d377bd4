"""Room that is kept for a task that fits nowhere yet."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.placement import Ask, Placement, place
from duly.policy.queueing import qualifies_for_hold

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def node(number, cpu=4, *, used=0.0, reserved=0.0, next_end=HOUR, **more):
    def cores(amount):
        return Resources(cpu_milli=round(amount * 1000))

    return Offer(
        node_id=number,
        incarnation_id=number * 10,
        name=f"node-{number}",
        capacity=cores(cpu),
        free=cores(cpu - used - reserved),
        used=cores(used),
        next_end=next_end,
        **more,
    )


def ask(task, cpu, *, cap=HOUR, pressing=False, avoid=None):
    shape = Shape(Resources(cpu_milli=round(cpu * 1000)))
    return Ask(task, round(cpu * 1000), shape, avoid, cap, pressing)


def large(task=1, cpu=2, **more):
    return ask(task, cpu, pressing=True, **more)


def test_small_tasks_do_not_take_the_room_of_a_large_one_that_presses():
    full = node(1, used=3)
    assert place([large(), ask(2, 1)], [full]) == []
    assert place([ask(1, 2), ask(2, 1)], [full]) == [Placement(2, 10)]


def test_those_that_come_first_take_what_they_need():
    assert place([ask(1, 1), large(2)], [node(1, used=3)]) == [Placement(1, 10)]


def test_what_a_hold_leaves_over_is_for_others():
    memory = Resources(cpu_milli=4000, memory_mb=1000)
    free = Resources(cpu_milli=1000, memory_mb=1000)
    offer = replace_offer(node(1), capacity=memory, free=free, used=Resources(cpu_milli=3000))
    idler = Ask(2, 2, Shape(Resources(memory_mb=500)), None, HOUR * 2)
    assert place([large(), idler], [offer]) == [Placement(2, 10)]


def replace_offer(offer, **changes):
    fields = {name: getattr(offer, name) for name in offer.__struct_fields__}
    return Offer(**{**fields, **changes})


def test_only_one_node_keeps_room_for_a_task():
    nodes = [node(1, used=3), node(2, used=3)]
    assert place([large(), ask(2, 1), ask(3, 1)], nodes) == [Placement(2, 20)]


def of_tenant(request, tenant):
    return msgspec.structs.replace(request, tenant=tenant)


def test_no_tenant_gets_two_holds_and_no_more_than_a_quarter_of_the_nodes_keep_room():
    nodes = [node(number, used=3) for number in range(1, 9)]
    small = [ask(task, 1) for task in range(10, 18)]
    placed = [
        len(place([*larges, *small], nodes))
        for larges in (
            [of_tenant(large(1), 1)],
            [of_tenant(large(1), 1), of_tenant(large(2), 1)],
            [of_tenant(large(1), 1), of_tenant(large(2), 2)],
            [of_tenant(large(tenant), tenant) for tenant in range(1, 8)],
        )
    ]
    assert placed == [7, 7, 6, 6]


def test_the_node_that_is_nearest_to_fitting_keeps_the_room():
    nodes = [node(1, used=3.5), node(2, used=2.5), node(3, used=3)]
    assert place([large(), ask(2, 0.5), ask(3, 0.5)], nodes) == [
        Placement(2, 10),
        Placement(3, 30),
    ]


def test_the_node_where_it_failed_keeps_room_for_it_only_if_no_other_can():
    nodes = [node(1, used=2.5), node(2, used=3.5)]
    assert place([large(avoid=1), ask(2, 1)], nodes) == [Placement(2, 10)]
    assert place([large(avoid=1), ask(2, 1)], nodes[:1]) == []


def test_a_node_that_could_never_fit_it_keeps_no_room():
    for unable in (
        node(1, cpu=1.5, used=0.5),
        node(1, reserved=3),
        node(1, used=2.5, draining=True),
    ):
        taken = place([large(), ask(2, 1)], [unable, node(2, used=3)])
        assert taken == ([] if unable.draining else [Placement(2, 10)])


def test_what_must_be_over_before_anything_else_may_slip_in():
    minute = timedelta(minutes=1)
    offer = node(1, used=3, next_end=minute)
    assert place([large(), ask(2, 1, cap=minute / 2)], [offer]) == [Placement(2, 10)]
    assert place([large(), ask(2, 1, cap=minute)], [offer]) == []


@dataclass(frozen=True)
class Running:
    cpu: float
    cap: int
    seconds: int
    """How long it really takes."""


works = st.builds(
    lambda cpu, cap, share: Running(cpu, cap, max(1, round(cap * share))),
    st.sampled_from((0.25, 0.5, 1.0)),
    st.integers(1, 30),
    st.floats(0.05, 1),
)


@given(st.lists(works, min_size=4, max_size=12), st.lists(works, min_size=1, max_size=10))
def test_a_large_task_starts_when_all_that_runs_must_have_ended_at_the_latest(first, others):
    """Small tasks come all the time; by caps, the large one has its room at a known time."""
    running = []
    for work in first:
        if sum(one.cpu for one in running) + work.cpu <= 4:
            running.append(work)
    latest = max(one.cap for one in running)
    for second in range(latest + 1):
        used = sum(one.cpu for one in running)
        offer = node(
            1,
            used=used,
            next_end=timedelta(seconds=min((one.cap for one in running), default=0)),
        )
        asks = [large(0, 4)] + [
            Ask(
                number,
                round(work.cpu * 1000),
                Shape(Resources(cpu_milli=round(work.cpu * 1000))),
                None,
                timedelta(seconds=work.cap),
            )
            for number, work in enumerate(others * 20, 1)
        ]
        placed = {one.task for one in place(asks, [offer])}
        if 0 in placed:
            return
        running += [others[(task - 1) % len(others)] for task in placed]
        running = [
            replace(one, cap=one.cap - 1, seconds=one.seconds - 1)
            for one in running
            if one.seconds > 1
        ]
        assert second < latest, "it still waits"


@dataclass(frozen=True)
class Waits:
    start_by: datetime
    delay_tolerance: timedelta = HOUR
    losses: int = 0


def test_a_task_presses_when_half_of_its_tolerance_is_used_up_or_when_it_was_lost():
    assert not qualifies_for_hold(Waits(NOW + HOUR), NOW)
    assert not qualifies_for_hold(Waits(NOW + HOUR * 0.51), NOW)
    assert qualifies_for_hold(Waits(NOW + HOUR * 0.5), NOW)
    assert qualifies_for_hold(Waits(NOW - HOUR), NOW)
    assert qualifies_for_hold(Waits(NOW + HOUR, losses=1), NOW)
    assert qualifies_for_hold(Waits(NOW, delay_tolerance=timedelta(0)), NOW)
