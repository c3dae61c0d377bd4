"""How much of what the nodes have is in use."""

from hypothesis import given
from hypothesis import strategies as st

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.policy.peak import Load

kinds = st.integers(0, 100)


def offer(capacity, free, *, draining=False):
    return Offer(
        node_id=1, incarnation_id=1, name="n", capacity=capacity, free=free, draining=draining
    )


def node(cpu, used, gpus=0, used_gpus=0, **more):
    return offer(
        Resources(cpu_milli=cpu, extra={"gpu": gpus}),
        Resources(cpu_milli=cpu - used, extra={"gpu": gpus - used_gpus}),
        **more,
    )


def test_all_nodes_count_together_but_for_those_that_take_nothing_more():
    load = Load([node(1000, 900), node(3000, 0), node(5000, 5000, draining=True)])
    assert load.scarcest(Resources(cpu_milli=1)).percent == 22.5


def test_only_what_is_needed_counts():
    load = Load([node(1000, 100, gpus=2, used_gpus=2)])
    assert load.scarcest(Resources(cpu_milli=1)).kind == "cpu_milli"
    with_gpu = load.scarcest(Resources(cpu_milli=1, extra={"gpu": 1}))
    assert (with_gpu.kind, with_gpu.percent) == ("gpu", 100)


def test_what_is_about_to_start_is_in_use_and_a_copy_has_its_own():
    load = Load([node(1000, 700)])
    copy = load.copy()
    copy.add(Resources(cpu_milli=100))
    assert copy.scarcest(Resources(cpu_milli=1)).reaches(80)
    assert not load.scarcest(Resources(cpu_milli=1)).reaches(80)


def test_where_there_is_nothing_nothing_is_in_use():
    assert not Load([]).scarcest(Resources(cpu_milli=1)).reaches(80)
    assert not Load([node(1000, 0)]).scarcest(Resources(extra={"fpga": 1})).reaches(1)


@given(kinds, kinds, kinds, kinds)
def test_more_in_use_is_never_less_of_a_peak(total, used, more, percent):
    load = Load([node(total, used)])
    before = load.scarcest(Resources(cpu_milli=1)).reaches(percent)
    load.add(Resources(cpu_milli=more))
    assert load.scarcest(Resources(cpu_milli=1)).reaches(percent) or not before
