"""Room that nodes keep for urgent tasks at peak time."""

from datetime import timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.budget.headroom import SLOT, keep, slots_to_keep, withhold
from duly.policy.placement import Ask, could_fit, place

LABELS = st.sampled_from([{}, {}, {"disk": "fast"}])


def slots(count):
    return Resources().plus(SLOT, count)


def offer(number, total, free, **more):
    return Offer(
        node_id=number,
        incarnation_id=number,
        name=f"node-{number}",
        capacity=slots(total),
        free=slots(free),
        used=slots(total - free),
        **more,
    )


@st.composite
def fleets(draw):
    sizes = draw(st.lists(st.tuples(st.integers(0, 30), LABELS), min_size=1, max_size=12))
    return [
        offer(number, total, draw(st.integers(0, total)), labels=labels)
        for number, (total, labels) in enumerate(sizes)
    ]


@st.composite
def asks(draw):
    many = draw(
        st.lists(st.tuples(st.integers(1, 30), st.booleans(), st.booleans(), LABELS), max_size=30)
    )
    return [
        Ask(
            number,
            number,
            Shape(slots(size), requires),
            run_time_bound=timedelta(hours=1),
            may_hold=may_hold,
            tenant=number % 3,
            may_use_headroom=is_urgent,
        )
        for number, (size, is_urgent, may_hold, requires) in enumerate(many)
    ]


def test_a_twentieth_of_the_slots_is_kept_on_one_node_and_none_in_small_fleets():
    fleet = [offer(1, 20, 3), offer(2, 20, 9), offer(3, 20, 1)]
    assert slots_to_keep(fleet, 5) == 3
    assert keep(fleet, 3) == {2: slots(3)}
    assert slots_to_keep([offer(1, 19, 19)], 5) == 0
    assert slots_to_keep([offer(1, 20, 0)], 5) == 1
    assert slots_to_keep([offer(1, 20, 0)], 0) == 0
    assert keep(fleet, 0) == {}


def test_nodes_that_could_keep_all_of_it_come_first_and_unhealthy_ones_last():
    fleet = [
        offer(1, 2, 2),
        offer(2, 40, 0),
        offer(3, 40, 1, penalty=1),
        offer(4, 40, 40, draining=True),
    ]
    assert keep(fleet, 3) == {2: slots(3)}
    assert keep(fleet, 50) == {1: slots(2), 2: slots(40), 3: slots(8)}


@given(fleets(), st.integers(0, 40))
def test_no_fewer_nodes_could_keep_as_much(fleet, wanted):
    kept = keep(fleet, wanted)
    amounts = [amount.cpu_milli // SLOT.cpu_milli for amount in kept.values()]
    sizes = sorted((each.capacity.cpu_milli // SLOT.cpu_milli for each in fleet), reverse=True)
    assert sum(amounts) == min(wanted, sum(sizes))
    assert not wanted or sum(sizes[: len(kept) - 1]) < wanted or sum(sizes) < wanted


@given(fleets(), st.integers(0, 10), asks())
def test_tasks_that_may_not_use_the_headroom_leave_it_free(fleet, wanted, asked):
    kept = keep(fleet, wanted)
    needs = {ask.task: ask for ask in asked}
    free = {each.incarnation_id: each.free for each in fleet}
    for placed in place(asked, fleet, kept):
        ask = needs[placed.task]
        free[placed.incarnation] = left = free[placed.incarnation].plus(ask.shape.needs, -1)
        if not ask.may_use_headroom:
            left = left.plus(kept.get(placed.incarnation, Resources()), -1)
        assert min(amount for _, amount in left.items()) >= 0


@given(fleets(), st.integers(1, 10))
def test_what_is_free_of_the_headroom_stays_free_while_others_take_all_they_can(fleet, wanted):
    small = [Ask(number, 1, Shape(SLOT)) for number in range(400)]
    kept = keep(fleet, wanted)
    left = {each.incarnation_id: each for each in fleet}
    for placed in place(small, fleet, kept):
        before = left[placed.incarnation]
        left[placed.incarnation] = offer(
            before.node_id,
            before.capacity.cpu_milli // SLOT.cpu_milli,
            before.free.cpu_milli // SLOT.cpu_milli - 1,
        )
    again = keep(left.values(), wanted)

    def available(offers, headroom):
        return sum(
            min(each.free.cpu_milli, headroom[each.incarnation_id].cpu_milli)
            for each in offers
            if each.incarnation_id in headroom
        )

    assert available(left.values(), again) >= available(fleet, kept)


@given(fleets(), st.integers(0, 10), st.integers(1, 30), LABELS)
def test_a_task_that_no_idle_node_could_run_beside_the_headroom_is_the_only_one_exempt(
    fleet, wanted, size, requires
):
    shape = Shape(slots(size), requires)
    idle = [
        offer(each.node_id, total, total, labels=each.labels)
        for each in fleet
        for total in [each.capacity.cpu_milli // SLOT.cpu_milli]
    ]
    kept = keep(idle, wanted)
    assume(any(could_fit(shape, each) for each in idle))
    is_exempt = not any(could_fit(shape, each) for each in withhold(idle, kept))
    ask = Ask(1, 1, shape, may_use_headroom=is_exempt)
    assert len(place([ask], idle, kept)) == 1


def test_a_hold_is_on_a_node_that_can_fit_the_task_beside_its_headroom():
    fleet = [offer(1, 10, 9), offer(2, 10, 2)]
    large = Ask(1, 1, Shape(slots(10)), may_hold=True, tenant=1)
    small = [Ask(number, 2, Shape(SLOT), tenant=2) for number in range(2, 30)]
    placed = place([large, *small], fleet, {1: slots(1)})
    assert [each.incarnation for each in placed] == [1] * 8
