from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.server.scheduling.subqueues.ready_queues import (
    SPARE_SUBQUEUES_PER_TENANT,
    UNKNOWN_START_BY,
    ReadyQueues,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS = st.tuples(st.integers(1, 4), st.integers(1, 3))


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def test_the_earliest_start_by_is_popped_first_whatever_its_shape():
    queues = ReadyQueues({(1, 1): at(3), (2, 1): at(1), (3, 2): at(2), (4, 3): at(0)})
    assert list(queues.pop([1, 2], 2)) == [(2, 1), (3, 2)]
    assert list(queues.pop([1, 2], 2)) == [(1, 1)]
    assert queues.shapes() == [3]


def test_a_subqueue_that_was_only_peeked_at_can_be_popped_later():
    queues = ReadyQueues({(1, 1): at(3), (2, 1): at(1)})
    assert queues.peek([1], 1) == {(2, 1): at(1)}
    assert queues.pop([1], 9) == {(2, 1): at(1), (1, 1): at(3)}


def test_an_earlier_start_by_moves_a_subqueue_up_and_a_later_one_changes_nothing():
    queues = ReadyQueues({(1, 1): at(5), (2, 1): at(3)})
    assert not queues.mark_ready((2, 1), at(9))
    assert queues.mark_ready((1, 1), at(1))
    assert queues.pop([1], 1) == {(1, 1): at(1)}
    assert queues.pop([1], 9) == {(2, 1): at(3)}
    assert queues.shapes() == []


def test_a_subqueue_that_is_added_again_is_ordered_by_its_new_start_by():
    queues = ReadyQueues({(1, 1): at(1), (2, 1): at(2)})
    queues.pop([1], 1)
    assert queues.mark_ready((1, 1), at(3))
    assert list(queues.pop([1], 9)) == [(2, 1), (1, 1)]


def test_subqueues_of_one_second_are_served_round_robin_whatever_their_shape():
    queues = ReadyQueues({(1, 1): at(1), (2, 2): at(1), (3, 1): at(1)})
    served = []
    for _ in range(6):
        ((key, start_by),) = queues.pop([1, 2], 1).items()
        queues.mark_ready(key, start_by)
        served.append(key)
    assert served == [(1, 1), (2, 2), (3, 1)] * 2


def test_a_subqueue_that_is_put_back_at_the_front_is_the_next_one():
    queues = ReadyQueues({(1, 1): at(1), (2, 2): at(1), (3, 1): at(1)})
    popped = queues.pop([1, 2], 2)
    for key, start_by in reversed(popped.items()):
        queues.mark_ready(key, start_by, at_front=True)
    assert list(queues.pop([1, 2], 9)) == [(1, 1), (2, 2), (3, 1)]


def test_the_round_robin_goes_on_after_the_subqueue_that_was_served_last():
    start_bys = {(1, 1): at(1), (2, 1): at(1), (2, 2): at(1), (3, 1): at(1), (4, 1): at(0)}
    queues = ReadyQueues(start_bys, last_served=(2, 1))
    assert list(queues.pop([1, 2], 9)) == [(4, 1), (2, 2), (3, 1), (1, 1), (2, 1)]


def test_a_subqueue_that_was_served_goes_behind_the_others_of_its_second():
    queues = ReadyQueues({(1, 1): at(1), (2, 1): at(2), (3, 1): at(2), (4, 1): at(3)})
    queues.move_to_back((1, 1), at(2))
    queues.move_to_back((2, 1), at(2))
    queues.move_to_back((5, 1), at(0))
    assert list(queues.pop([1], 9).items()) == [
        ((3, 1), at(2)),
        ((1, 1), at(2)),
        ((2, 1), at(2)),
        ((4, 1), at(3)),
    ]


def test_a_subqueue_with_unknown_start_by_comes_first():
    queues = ReadyQueues({(1, 1): at(1)})
    queues.mark_ready((2, 1), UNKNOWN_START_BY)
    assert list(queues.pop([1], 1)) == [(2, 1)]


def test_a_discarded_subqueue_is_gone_until_it_is_marked_ready():
    queues = ReadyQueues({(1, 1): at(1)})
    queues.discard((1, 1))
    assert queues.shapes() == []
    queues.mark_ready((1, 1), at(2))
    assert queues.pop([1], 1) == {(1, 1): at(2)}


class Blocking:
    """A gate that blocks some tenants or subqueues, each for a cause."""

    def __init__(self, causes, rooms=None):
        self.causes = causes
        self.rooms = rooms or {}
        self.asked = 0

    def cause(self, tenant, shape_id):
        self.asked += 1
        return self.causes.get((tenant, shape_id), self.causes.get(tenant))

    def tenant_room(self, tenant, shape_id):
        return self.rooms.get(tenant, 10**6)


def test_blocked_subqueues_are_parked_and_stay_indexed():
    queues = ReadyQueues({(1, 1): at(0), (1, 2): at(1), (2, 1): at(2), (3, 2): at(3)})
    assert list(queues.pop([1, 2], 9, Blocking({1: "full"}))) == [(2, 1), (3, 2)]
    assert sorted(queues.shapes()) == [1, 2]
    assert queues.keys_of_shapes({1}) == [(1, 1)]
    assert queues.tenants == {1, 2, 3}
    assert queues.pop([1, 2], 9) == {}


def test_subqueues_are_unparked_in_order_once_nothing_blocks_them():
    queues = ReadyQueues({(1, 1): at(0), (2, 1): at(1)})
    queues.pop([1], 9, Blocking({1: "full", 2: "full"}))
    queues.unpark(Blocking({1: "full", 2: "full"}))
    assert queues.pop([1], 9) == {}
    queues.unpark(Blocking({}))
    assert queues.pop([1], 9) == {(1, 1): at(0), (2, 1): at(1)}


def test_a_subqueue_with_another_cause_hides_none_behind_it():
    queues = ReadyQueues({(1, 1): at(0), (1, 2): at(1)})
    queues.pop([1, 2], 9, Blocking({1: "full"}))
    gate = Blocking({(1, 1): "key"})
    queues.unpark(gate)
    assert list(queues.pop([1, 2], 9, gate)) == [(1, 2)]
    queues.unpark(Blocking({}))
    assert list(queues.pop([1, 2], 9)) == [(1, 1)]


def test_an_earlier_start_by_moves_a_parked_subqueue_up():
    queues = ReadyQueues({(1, 1): at(5), (1, 2): at(3)})
    queues.pop([1, 2], 9, Blocking({1: "full"}))
    assert not queues.mark_ready((1, 1), at(9))
    assert not queues.mark_ready((1, 1), at(1))
    queues.unpark(Blocking({}))
    assert queues.pop([1, 2], 9) == {(1, 1): at(1), (1, 2): at(3)}


def test_of_a_nearly_full_tenant_no_more_subqueues_are_popped_than_it_needs():
    many = {(1, shape): at(shape) for shape in range(1000)}
    queues = ReadyQueues({**many, (2, 1): at(2000)})
    gate = Blocking({}, rooms={1: 1})
    popped = queues.pop(range(1000), 200, gate)
    assert list(popped) == [
        *((1, shape) for shape in range(1 + SPARE_SUBQUEUES_PER_TENANT)),
        (2, 1),
    ]
    for key, start_by in popped.items():
        queues.mark_ready(key, start_by)
    full = Blocking({1: "full"}, rooms={1: 0})
    assert list(queues.pop(range(1000), 200, full)) == [(2, 1)]
    gate.asked = 0
    queues.unpark(gate)
    assert gate.asked <= 4 * (1 + SPARE_SUBQUEUES_PER_TENANT)
    assert len(queues.pop(range(1000), 200)) <= 2 * (1 + SPARE_SUBQUEUES_PER_TENANT)


@given(
    st.dictionaries(KEYS, st.integers(0, 3)),
    st.lists(
        st.one_of(
            st.tuples(st.just("mark ready"), KEYS, st.integers(0, 3)),
            st.tuples(st.just("discard"), KEYS),
            st.tuples(st.just("pop"), st.integers(1, 5)),
        ),
        max_size=20,
    ),
)
def test_subqueues_are_popped_by_start_by_and_then_round_robin(counted, steps):
    queues = ReadyQueues({key: at(second) for key, second in counted.items()})
    expected = {key: (at(second), turn) for turn, (key, second) in enumerate(counted.items())}
    for turn, step in enumerate(steps, len(counted)):
        match step:
            case ("mark ready", key, second):
                queues.mark_ready(key, at(second))
                if key not in expected or at(second) < expected[key][0]:
                    expected[key] = at(second), turn
            case ("discard", key):
                queues.discard(key)
                expected.pop(key, None)
            case ("pop", count):
                first = sorted(expected, key=expected.get)[:count]
                assert queues.peek([1, 2, 3], count) == {key: expected[key][0] for key in first}
                assert list(queues.pop([1, 2, 3], count).items()) == [
                    (key, expected.pop(key)[0]) for key in first
                ]
        assert set(queues.shapes()) == {shape for _, shape in expected}
