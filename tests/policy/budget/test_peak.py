"""How much of what the nodes have is in use, and when that is peak time."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duly.config import SchedulingSettings
from duly.model.node import Offer
from duly.model.queues.peak import NO_PEAK, PeakState
from duly.model.resources import Resources
from duly.policy.budget.peak import Load, Postponement, next_peak

NOW = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CPU, GPU = Resources(cpu_milli=1), Resources(extra={"gpu": 1})
SETTINGS = SchedulingSettings()
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


def test_only_nodes_that_declare_an_optional_kind_count_for_it():
    declared = offer(Resources(iops=100), Resources(iops=40))
    undeclared = offer(Resources(cpu_milli=1), Resources(cpu_milli=1, iops=-500))
    assert Load([declared, undeclared]).scarcest(Resources(iops=1)).percent == 60


def peaks(used):
    """Return the states of a fleet of 100 cores of which so many are in use, minute by minute."""
    state, states = NO_PEAK, []
    for minute, cores in enumerate(used):
        state = next_peak(state, Load([node(100, cores)]), SETTINGS, NOW + minute * MINUTE)
        states.append(state)
    return states


def test_peak_time_begins_at_80_percent_and_ends_at_70():
    states = peaks([79, 80, 75, 71, 70, 75, 79, 81])
    since = [state.since_for(CPU) for state in states]
    begun, again = NOW + MINUTE, NOW + 7 * MINUTE
    assert since == [None, begun, begun, begun, None, None, None, again]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_between_the_thresholds_nothing_changes(used):
    for (before, after), cores in zip(pairwise([NO_PEAK, *peaks(used)]), used, strict=True):
        if cores >= 80:
            assert after.is_peak
        elif cores <= 70:
            assert not after.is_peak
        else:
            assert after == before


def test_every_kind_of_resource_has_a_peak_of_its_own():
    before = PeakState({"gpu": NOW - MINUTE})
    state = next_peak(before, Load([node(100, 90, gpus=4, used_gpus=3)]), SETTINGS, NOW)
    assert (state.since_for(CPU), state.since_for(GPU)) == (NOW, NOW - MINUTE)
    state = next_peak(state, Load([node(100, 90, gpus=4, used_gpus=2)]), SETTINGS, NOW)
    assert (state.since_for(CPU), state.since_for(GPU)) == (NOW, None)
    assert not next_peak(state, Load([]), SETTINGS, NOW).is_peak


def test_a_peak_of_one_kind_postpones_only_tasks_that_need_it():
    load = Load([node(100, 10, gpus=4, used_gpus=4)])
    postponement = Postponement(next_peak(NO_PEAK, load, SETTINGS, NOW), load, SETTINGS, NOW)
    later = NOW + timedelta(hours=7)
    assert not postponement.applies(CPU, later, is_off_peak=True)
    assert postponement.applies(GPU, later, is_off_peak=True)
    assert postponement.applies(GPU, later, is_off_peak=False)
    assert not postponement.applies(GPU, NOW + timedelta(hours=6), is_off_peak=False)
    assert not postponement.applies(GPU, NOW + MINUTE, is_off_peak=True)
