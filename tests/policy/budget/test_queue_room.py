"""What a queue may start: within its hours, unless paused, up to its share."""

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.node import Offer
from duly.model.queues.queue import OpeningHours, QueueDefinition, QueueDefinitions
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.budget.queue_room import (
    QueueRoom,
    fleet_capacity,
    held_by_queue,
    is_open,
    next_opening,
    share_limit,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
SHAPES = {
    1: Shape(Resources(cpu_milli=1000), queue="bulk"),
    2: Shape(Resources(cpu_milli=3000, memory_mb=100), queue="bulk"),
    3: Shape(Resources(cpu_milli=1000)),
}
FLEET = Resources(cpu_milli=10_000, memory_mb=1000)
NIGHT = OpeningHours(time(22), time(6))


def room(held=(), *, now=NOW, **bounds):
    """Return the room of a fleet where tasks of these shapes run, with a queue `bulk`."""
    queues = QueueDefinitions([QueueDefinition(name="bulk", level=50, **bounds)])
    running = [(shape, 1) for shape in held]
    return QueueRoom(queues, SHAPES, FLEET, held_by_queue(running, SHAPES, queues), now)


@pytest.mark.parametrize(
    ("hours", "at", "expected"),
    [
        (None, time(3), True),
        (OpeningHours(time(9), time(17)), time(9), True),
        (OpeningHours(time(9), time(17)), time(17), False),
        (NIGHT, time(21, 59, 59), False),
        (NIGHT, time(22), True),
        (NIGHT, time(0), True),
        (NIGHT, time(6), False),
        (OpeningHours(time(18), time(0)), time(23, 59, 59), True),
        (OpeningHours(time(22), time(6), "Asia/Tokyo"), time(13), True),
        (OpeningHours(time(22), time(6), "Asia/Tokyo"), time(22), False),
    ],
)
def test_a_queue_is_open_in_its_daily_window(hours, at, expected):
    assert is_open(hours, datetime.combine(NOW, at, UTC)) is expected


times = st.times().map(lambda at: at.replace(second=0, microsecond=0))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])


@given(times, times, zones, st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)))
def test_a_closed_queue_opens_when_it_says_and_not_before(opens, closes, zone, now):
    hours, now = OpeningHours(opens, closes, zone), now.replace(tzinfo=UTC)
    if opens == closes or is_open(hours, now):
        return
    at = next_opening(hours, now)
    assert is_open(hours, at)
    # On the day of a clock change a window may be jumped over, or come twice.
    assert now < at <= now + timedelta(hours=49)
    if zone in ("UTC", "Asia/Kolkata"):
        assert at <= now + timedelta(hours=24)
        assert not is_open(hours, now + (at - now) / 2)


def test_a_paused_or_closed_queue_has_no_room_and_the_others_all_of_it():
    for bounds in ({"paused_at": NOW, "paused_by": "x"}, {"hours": NIGHT}):
        shut = room(**bounds)
        assert (shut.of(1), shut.of(3) > 1000) == (0, True)
    assert room(hours=NIGHT, now=NOW.replace(hour=23)).of(1) > 1000


def test_a_queue_holds_no_more_than_its_share_of_the_scarcest_kind():
    assert room(max_share=0.3).of(1) == 3
    assert room([1], max_share=0.3).of(1) == 2
    assert room([1], max_share=0.3).of(2) == 0
    assert room([2, 2, 2], max_share=0.3).of(1) == 0
    assert room([3, 3, 3], max_share=0.3).of(1) == 3
    assert room(max_share=0.3).of(3) > 1000


@given(st.lists(st.sampled_from([1, 2]), max_size=20), st.floats(0.01, 1))
def test_whoever_asks_before_each_start_never_exceeds_the_share(asked, max_share):
    left = room(max_share=max_share)
    used = 0
    for shape in asked:
        if left.of(shape):
            left.charge(shape)
            used += SHAPES[shape].needs.cpu_milli
    assert used <= max_share * FLEET.cpu_milli + 1e-6


def test_slots_are_bounded_by_the_room_and_a_shut_queue_has_none():
    slots = {1: 9, 2: 0, 3: 5, 4: -1}
    assert room(max_share=0.4).bound(slots) == {1: 4, 2: 0, 3: 5}
    assert room(paused_at=NOW, paused_by="x").bound(slots) == {3: 5}
    assert room().bound(slots) is slots


def test_a_copy_is_charged_on_its_own():
    first = room(max_share=0.3)
    second = first.copy()
    second.charge(1)
    assert (first.of(1), second.of(1)) == (3, 2)


def test_the_limit_in_the_way_is_named_with_its_figures():
    queue = QueueDefinition(name="bulk", level=50, max_share=0.29)
    held = Resources(cpu_milli=2000)
    limit = share_limit(queue, FLEET, held, SHAPES[1].needs)
    assert limit is not None
    assert (limit.kind, limit.needed, limit.used, limit.limit) == ("cpu_milli", 1000, 2000, 2900)
    assert share_limit(queue, FLEET, Resources(), SHAPES[1].needs) is None


def test_only_nodes_that_take_work_count_as_the_fleet():
    def node(**others):
        ten = Resources(cpu_milli=10)
        return Offer(node_id=1, incarnation_id=1, name="n", capacity=ten, free=ten, **others)

    offers = [node(), node(draining=True), node(shortage="memory"), node()]
    assert fleet_capacity(offers) == Resources(cpu_milli=20)
