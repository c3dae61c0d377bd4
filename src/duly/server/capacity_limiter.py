"""Limiters of concurrent use: without shares, for each tenant, and shared fairly by tenants."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly.errors import Unavailable


class CapacityLimiter:
    """A limiter without shares: first come, first served.

    It has the methods of `FairCapacityLimiter`, so that a caller can use either.
    """

    def __init__(self, capacity: int, message: str) -> None:
        """Raise Unavailable with `message` when more than `capacity` would be in use."""
        self._message = message
        self.max_share = capacity
        self.used = 0

    def can_acquire(self, tenant_id: int, amount: int = 1) -> bool:
        """Return True if `amount` more is free."""
        return self.used + amount <= self.max_share

    def acquire(self, tenant_id: int, amount: int = 1) -> None:
        """Use `amount` more; raise Unavailable if that is not free."""
        if self.used + amount > self.max_share:
            raise Unavailable(self._message)
        self.used += amount

    def release(self, tenant_id: int, amount: int = 1) -> None:
        """Use `amount` less."""
        self.used -= amount


class TenantCapacityLimiters:
    """A limiter of equal capacity for each tenant: none can use up what others need."""

    def __init__(self, capacity: int, message: str) -> None:
        """Raise Unavailable with `message` when a tenant would use more than `capacity`."""
        self._capacity = capacity
        self._message = message
        self.used: dict[int, int] = {}
        """How much each tenant uses."""

    @contextmanager
    def acquired(self, tenant_id: int) -> Iterator[None]:
        """Use one place during the block; raise Unavailable if the tenant has none left."""
        self.acquire(tenant_id)
        try:
            yield
        finally:
            self.release(tenant_id)

    def acquire(self, tenant_id: int) -> None:
        """Use one more place of a tenant; raise Unavailable if it has none left."""
        used = self.used.get(tenant_id, 0)
        if used >= self._capacity:
            raise Unavailable(self._message)
        self.used[tenant_id] = used + 1

    def release(self, tenant_id: int) -> None:
        """Use one place of a tenant less."""
        self.used[tenant_id] -= 1
        if not self.used[tenant_id]:
            del self.used[tenant_id]


class FairCapacityLimiter:
    """A limiter that tenants share, with capacity left for one more tenant at any time.

    A tenant may use no more than is still free (a dynamic threshold, as switches share their
    buffers). Alone it gets half of the capacity, and the next tenant half of the rest.
    """

    def __init__(self, capacity: int, message: str) -> None:
        """Raise Unavailable with `message` when a tenant would use more than its share."""
        self._message = message
        self._free = capacity
        self.max_share = (capacity + 1) // 2
        """How much a tenant may use while no other uses anything."""
        self.used: dict[int, int] = {}
        """How much each tenant uses."""

    @contextmanager
    def acquired(self, tenant_id: int) -> Iterator[None]:
        """Use one place during the block; raise Unavailable if the tenant has none left."""
        self.acquire(tenant_id)
        try:
            yield
        finally:
            self.release(tenant_id)

    def can_acquire(self, tenant_id: int, amount: int = 1) -> bool:
        """Return True if a tenant may use `amount` more."""
        # What the tenant would use against what would be left, down to the last place.
        return self.used.get(tenant_id, 0) + amount <= self._free - amount + 1

    def acquire(self, tenant_id: int, amount: int = 1) -> None:
        """Let a tenant use `amount` more; raise Unavailable if that is above its share."""
        used = self.used.get(tenant_id, 0) + amount
        free = self._free - amount
        # As in `can_acquire`, whose call would cost every request some time.
        if used > free + 1:
            raise Unavailable(self._message)
        self._free = free
        self.used[tenant_id] = used

    def release(self, tenant_id: int, amount: int = 1) -> None:
        """Let a tenant use `amount` less."""
        self._free += amount
        used = self.used[tenant_id] - amount
        if used:
            self.used[tenant_id] = used
        else:
            del self.used[tenant_id]
