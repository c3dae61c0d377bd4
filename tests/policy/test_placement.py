"""Which node takes which task."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.node import NodeProfile, Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.placement import (
    Ask,
    Placement,
    could_ever_fit,
    fits,
    place,
    placeable_count,
    reasons_against,
)


def node(number, cpu=2000, memory=4096, *, used=0, draining=False, labels=(), penalty=0, **more):
    capacity = Resources(cpu_milli=cpu, memory_mb=memory, **more)
    return Offer(
        node_id=number,
        incarnation_id=number * 10,
        name=f"node-{number}",
        capacity=capacity,
        free=capacity.plus(Resources(cpu_milli=used), -1),
        labels=dict(labels),
        draining=draining,
        penalty=penalty,
    )


def known(offer):
    return NodeProfile(offer.capacity, offer.labels)


def ask(task, cpu=500, memory=256, *, avoid=None, requires=(), **more):
    shape = Shape(Resources(cpu_milli=cpu, memory_mb=memory, **more), dict(requires))
    return Ask(task, hash((cpu, memory, *sorted(more), *requires)), shape, avoid)


def test_tasks_are_served_in_the_order_in_which_they_come():
    asks = [ask(1, 1500), ask(2, 1000), ask(3, 500)]
    assert place(asks, [node(1)]) == [Placement(1, 10), Placement(3, 10)]


def test_the_fullest_node_that_fits_is_filled_first():
    assert place([ask(1)], [node(1), node(2, used=1000)]) == [Placement(1, 20)]


@pytest.mark.parametrize("used", [0, 32_000, 63_000])
def test_a_light_task_leaves_a_heavy_machine_alone_however_full_it_is(used):
    heavy = node(1, cpu=64_000, memory=512_000, used=used)
    assert place([ask(1)], [heavy, node(2)]) == [Placement(1, 20)]


def test_a_light_task_takes_a_heavy_machine_when_no_light_one_fits():
    heavy = node(1, cpu=64_000, memory=512_000)
    light = node(2, used=1600)
    assert place([ask(1), ask(2, 400)], [heavy, light]) == [Placement(1, 10), Placement(2, 20)]


def test_a_task_without_need_of_a_gpu_leaves_machines_with_one_to_those_that_have():
    special, plain = node(1, extra={"gpu": 2}, used=1000), node(2, cpu=4000)
    asks = [ask(1), ask(2, extra={"gpu": 1})]
    assert place(asks, [special, plain]) == [Placement(1, 20), Placement(2, 10)]


def test_machines_of_one_type_that_differ_a_little_are_filled_one_after_another():
    first, second = node(1, 8000, 32_100, used=4000), node(2, 8000, 31_900)
    assert place([ask(1)], [first, second]) == [Placement(1, 10)]


@given(
    st.lists(st.tuples(st.sampled_from([1, 4, 16, 64]), st.floats(0, 1)), min_size=1, max_size=8),
    st.sampled_from([250, 500, 1000]),
)
def test_no_light_task_takes_a_heavy_machine_while_a_light_one_fits(nodes, cpu):
    offers = [
        node(number, cores * 1000, cores * 4096, used=int(cores * 1000 * used))
        for number, (cores, used) in enumerate(nodes, 1)
    ]
    fitting = [offer for offer in offers if offer.free.cpu_milli >= cpu]
    placed = place([ask(1, cpu)], offers)
    sizes = {offer.incarnation_id: offer.capacity.cpu_milli for offer in offers}
    assert [sizes[one.incarnation] for one in placed] == [
        min(offer.capacity.cpu_milli for offer in fitting) for _ in fitting[:1]
    ]


def test_a_retry_goes_to_another_node_if_one_fits():
    assert place([ask(1, avoid=2)], [node(1), node(2, used=1000)]) == [Placement(1, 10)]


def test_of_two_next_to_each_other_each_avoids_the_node_that_it_has_to():
    asks = [ask(1, avoid=1), ask(2, avoid=2), ask(3, avoid=2)]
    assert place(asks, [node(1), node(2)]) == [
        Placement(1, 20),
        Placement(2, 10),
        Placement(3, 10),
    ]


def test_a_retry_goes_to_the_same_node_if_no_other_fits():
    assert place([ask(1, avoid=2)], [node(1, used=2000), node(2)]) == [Placement(1, 20)]


def test_a_draining_node_takes_nothing():
    assert place([ask(1)], [node(1, draining=True)]) == []
    assert reasons_against(ask(1).shape, node(1, draining=True)) == ["draining"]


def test_a_kind_that_a_node_does_not_declare_counts_only_if_it_must():
    assert fits(Shape(Resources(cpu_milli=1, iops=100)), node(1))
    assert not fits(Shape(Resources(cpu_milli=1, iops=100)), node(1, iops=50))
    assert not fits(Shape(Resources(cpu_milli=1, ports=1)), node(1))
    assert not fits(Shape(Resources(cpu_milli=1, extra={"gpu": 1})), node(1))
    assert fits(Shape(Resources(cpu_milli=1, extra={"gpu": 1})), node(1, extra={"gpu": 1}))


def test_what_is_too_large_for_every_node_is_known():
    large = Shape(Resources(cpu_milli=3000))
    assert not could_ever_fit(large, [known(node(1)), known(node(2))])
    assert could_ever_fit(large, [known(node(1)), known(node(2, cpu=3000))])
    assert reasons_against(large, node(1)) == ["too small by 1 CPU"]
    assert reasons_against(ask(1).shape, node(1, used=2000)) == ["busy: 0.5 CPU short"]


def test_a_task_goes_only_where_the_labels_are_that_it_requires():
    picky = ask(1, requires={("zone", "a"), ("disk", "ssd")})
    half, whole = node(1, labels={"zone": "a"}), node(2, labels={"zone": "a", "disk": "ssd"})
    assert place([picky], [half, whole]) == [Placement(1, 20)]
    assert place([picky, ask(2)], [half]) == [Placement(2, 10)]
    assert reasons_against(picky.shape, half) == ["not disk=ssd"]
    assert could_ever_fit(picky.shape, [known(half), known(whole)])
    assert not could_ever_fit(picky.shape, [known(half), known(node(3, labels={"disk": "ssd"}))])


amounts = st.integers(0, 8)
resources = st.builds(
    lambda cpu, memory, disk, iops, gpu: Resources(
        cpu_milli=cpu * 500,
        memory_mb=memory * 256,
        disk_mb=disk,
        iops=iops,
        extra={"gpu": gpu} if gpu else {},
    ),
    amounts,
    amounts,
    amounts,
    amounts,
    st.integers(0, 2),
)


labels = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)


@st.composite
def fleets(draw):
    offers = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        capacity = draw(resources)
        offers.append(
            Offer(
                node_id=number,
                incarnation_id=number * 10,
                name=f"node-{number}",
                capacity=capacity,
                free=capacity,
                labels=draw(labels),
                draining=draw(st.booleans()),
            )
        )
    return offers


@st.composite
def lines(draw):
    shapes = draw(st.lists(st.builds(Shape, resources, labels), min_size=1, max_size=4))
    nodes = st.none() | st.integers(1, 5)
    alike = st.tuples(st.integers(0, len(shapes) - 1), nodes, st.integers(1, 5))
    picks = [
        (shape, avoid)
        for shape, avoid, times in draw(st.lists(alike, max_size=8))
        for _ in range(times)
    ]
    return [Ask(i, shape, shapes[shape], avoid) for i, (shape, avoid) in enumerate(picks)]


@given(lines(), fleets())
def test_no_node_is_given_more_than_it_has(asks, offers):
    shapes = {one.task: one.shape for one in asks}
    for offer in offers:
        taken = Resources()
        for placed in place(asks, offers):
            if placed.incarnation == offer.incarnation_id:
                assert not offer.draining
                assert not shapes[placed.task].missing(offer.labels)
                taken = taken.plus(shapes[placed.task].needs)
        assert offer.capacity.shortage(taken) == {}


@given(lines(), fleets())
def test_what_is_passed_over_really_fits_nowhere(asks, offers):
    placements = place(asks, offers)
    placed = {one.task for one in placements}
    shapes = {one.task: one.shape for one in asks}
    left = {offer.incarnation_id: offer.free for offer in offers}
    for one in placements:
        left[one.incarnation] = left[one.incarnation].plus(shapes[one.task].needs, -1)
    for one in asks:
        if one.task not in placed:
            assert not any(
                not offer.draining
                and not one.shape.missing(offer.labels)
                and not left[offer.incarnation_id].shortage(one.shape.needs, offer.capacity)
                for offer in offers
            )


@given(lines(), fleets())
def test_those_that_ask_the_same_are_placed_as_if_they_came_one_by_one(asks, offers):
    left = {offer.incarnation_id: offer for offer in offers}
    placed = []
    for one in asks:
        for found in place([one], list(left.values())):
            offer = left[found.incarnation]
            free = offer.free.plus(one.shape.needs, -1)
            left[found.incarnation] = msgspec.structs.replace(offer, free=free)
            placed.append(found)
    assert place(asks, offers) == placed


@given(lines(), fleets())
def test_of_one_shape_the_first_go_first(asks, offers):
    placed = {one.task for one in place(asks, offers)}
    for shape in {one.shape_id for one in asks}:
        served = [one.task in placed for one in asks if one.shape_id == shape]
        assert served == sorted(served, reverse=True)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 2)), max_size=4),
    st.integers(0, 4),
    st.integers(0, 2),
    st.integers(1, 20),
)
def test_there_is_room_for_as_many_as_can_be_placed(nodes, cores, gpus, most):
    offers = [
        node(number, 10_000, used=1000 * used, draining=draining, extra={"gpu": extra})
        for number, (used, draining, extra) in enumerate(nodes)
    ]
    asks = [ask(task, 1000 * cores, 0, extra={"gpu": gpus}, iops=5) for task in range(most)]
    assert placeable_count(asks[0].shape, offers, most) == len(place(asks, offers))
