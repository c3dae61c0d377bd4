import pytest

from duly.errors import Unavailable
from duly.server.room import SharedRoom


def fill(room: SharedRoom, tenant_id: int) -> int:
    """Let a tenant take all that it gets; return how much that is."""
    taken = 0
    while True:
        try:
            room.take(tenant_id)
        except Unavailable:
            return taken
        taken += 1


def test_of_greedy_tenants_each_leaves_as_much_as_it_takes():
    room = SharedRoom(1200, "full")
    assert fill(room, 1) == 600
    assert fill(room, 2) == 300
    assert fill(room, 3) == 150
    room.give_back(1, 600)
    assert fill(room, 4) == 375
    assert 1 not in room.used


def test_much_at_once_is_held_to_the_same_share():
    room = SharedRoom(1000, "full")
    with pytest.raises(Unavailable):
        room.take(1, 501)
    room.take(1, 500)
    room.take(2, 250)
    with pytest.raises(Unavailable):
        room.take(2)


def test_a_place_is_given_back_whatever_happens():
    room = SharedRoom(2, "full")
    with pytest.raises(ValueError, match="x"), room.inside(7):
        raise ValueError("x")
    assert room.used == {}
