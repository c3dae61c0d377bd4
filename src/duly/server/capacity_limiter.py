"""A bound on how much of something there may be at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly.errors import Unavailable


class Room:
    """A room without shares: the first to come are the first to be let in.

    It has the methods of `SharedRoom`, so that a caller need not know which one it fills.
    """

    def __init__(self, most: int, full: str) -> None:
        self._full = full
        self.max_share = most
        self.used = 0

    def fits(self, tenant_id: int, amount: int = 1) -> bool:
        """Say whether that much more may come in."""
        return self.used + amount <= self.max_share

    def take(self, tenant_id: int, amount: int = 1) -> None:
        """Let it in; raises Unavailable when it is too much."""
        if self.used + amount > self.max_share:
            raise Unavailable(self._full)
        self.used += amount

    def give_back(self, tenant_id: int, amount: int = 1) -> None:
        """Let it out."""
        self.used -= amount


class TenantRooms:
    """A room for each tenant, of one size: who fills its own keeps nobody else out."""

    def __init__(self, most: int, full: str) -> None:
        self._most = most
        self._full = full
        self.used: dict[int, int] = {}
        """How many are inside, by tenant."""

    @contextmanager
    def inside(self, tenant_id: int) -> Iterator[None]:
        """Be inside for as long as the block lasts; raises Unavailable when there is no room."""
        self.enter(tenant_id)
        try:
            yield
        finally:
            self.leave(tenant_id)

    def enter(self, tenant_id: int) -> None:
        """Let one more of a tenant in; raises Unavailable when there is no room."""
        used = self.used.get(tenant_id, 0)
        if used >= self._most:
            raise Unavailable(self._full)
        self.used[tenant_id] = used + 1

    def leave(self, tenant_id: int) -> None:
        """Let one of a tenant out."""
        self.used[tenant_id] -= 1
        if not self.used[tenant_id]:
            del self.used[tenant_id]


class SharedRoom:
    """A room that tenants share, in which there is always a place for one more of them.

    A tenant may hold no more than is still free (a dynamic threshold, as switches share their
    buffers). Alone it gets half of the room, and whoever comes next half of what is left.
    """

    def __init__(self, most: int, full: str) -> None:
        self._full = full
        self._free = most
        self.max_share = (most + 1) // 2
        """How much a tenant may hold while nobody else holds anything."""
        self.used: dict[int, int] = {}
        """How much each tenant holds."""

    @contextmanager
    def inside(self, tenant_id: int) -> Iterator[None]:
        """Hold one place for as long as the block lasts; raises Unavailable when there is none."""
        self.take(tenant_id)
        try:
            yield
        finally:
            self.give_back(tenant_id)

    def fits(self, tenant_id: int, amount: int = 1) -> bool:
        """Say whether a tenant may hold that much more."""
        # What it would hold against what would be left, to the last place.
        return self.used.get(tenant_id, 0) + amount <= self._free - amount + 1

    def take(self, tenant_id: int, amount: int = 1) -> None:
        """Let a tenant hold that much more; raises Unavailable when it is too much."""
        used = self.used.get(tenant_id, 0) + amount
        free = self._free - amount
        # As in `fits`, which costs a call more for every request.
        if used > free + 1:
            raise Unavailable(self._full)
        self._free = free
        self.used[tenant_id] = used

    def give_back(self, tenant_id: int, amount: int = 1) -> None:
        """Let a tenant hold that much less."""
        self._free += amount
        left = self.used[tenant_id] - amount
        if left:
            self.used[tenant_id] = left
        else:
            del self.used[tenant_id]
