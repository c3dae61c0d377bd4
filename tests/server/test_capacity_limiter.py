import pytest

from duly.errors import Unavailable
from duly.server.capacity_limiter import FairCapacityLimiter


def fill(limiter: FairCapacityLimiter, tenant_id: int) -> int:
    """Acquire all that a tenant can get; return how much that is."""
    acquired = 0
    while True:
        try:
            limiter.acquire(tenant_id)
        except Unavailable:
            return acquired
        acquired += 1


def test_a_greedy_tenant_leaves_as_much_as_it_uses():
    limiter = FairCapacityLimiter(1200, "full")
    assert fill(limiter, 1) == 600
    assert fill(limiter, 2) == 300
    assert fill(limiter, 3) == 150
    limiter.release(1, 600)
    assert fill(limiter, 4) == 375
    assert 1 not in limiter.used


def test_a_large_amount_is_bound_by_the_same_share():
    limiter = FairCapacityLimiter(1000, "full")
    with pytest.raises(Unavailable):
        limiter.acquire(1, 501)
    limiter.acquire(1, 500)
    limiter.acquire(2, 250)
    with pytest.raises(Unavailable):
        limiter.acquire(2)


def test_a_place_is_released_when_the_block_fails():
    limiter = FairCapacityLimiter(2, "full")
    with pytest.raises(ValueError, match="x"), limiter.acquired(7):
        raise ValueError("x")
    assert limiter.used == {}
