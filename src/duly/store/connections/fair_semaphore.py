"""A semaphore shared by tenants: none may hold more permits than are still free.

A plain semaphore is fair to requests, so a tenant with many requests gets nearly all permits, and
others wait while its requests wait for each other's row locks. Here a tenant alone gets half of
the permits, and waiting tenants are served round-robin.
"""

import asyncio
from collections import deque

Group = int | None
"""A tenant, or None for work on behalf of no tenant."""


class FairSemaphore:
    """Counts the permits held by each group, and queues groups that have their share."""

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._used: dict[Group, int] = {}
        self._waiting: dict[Group, deque[asyncio.Future[None]]] = {}
        """Never an empty queue; the group to be served next comes first."""

    def try_acquire(self, group: Group) -> bool:
        """Take a permit if `group` may have one now and has no waiters."""
        # Other groups only wait if they already have their share: nobody is overtaken.
        if group in self._waiting or not self._fits(group):
            return False
        self._take(group)
        return True

    async def acquire(self, group: Group) -> None:
        """Wait for a permit, first come, first served within the group."""
        if self.try_acquire(group):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.cancelled():
                self._remove_waiter(group, waiter)
            else:
                # The permit was granted just as the wait was cancelled.
                self.release(group)
            raise

    def release(self, group: Group) -> None:
        """Return a permit, and grant it to the next waiter."""
        self._free += 1
        self._used[group] -= 1
        if not self._used[group]:
            del self._used[group]
        self._serve()

    def _fits(self, group: Group) -> bool:
        return self._used.get(group, 0) < self._free

    def _take(self, group: Group) -> None:
        self._free -= 1
        self._used[group] = self._used.get(group, 0) + 1

    def _serve(self) -> None:
        """Grant free permits until no waiting group may have another."""
        while self._free:
            fitting = [group for group in self._waiting if self._fits(group)]
            if not fitting:
                return
            group = fitting[0]
            waiters = self._waiting.pop(group)
            waiter = waiters.popleft()
            if waiters:
                # Behind the other groups: round-robin.
                self._waiting[group] = waiters
            if not waiter.cancelled():
                self._take(group)
                waiter.set_result(None)

    def _remove_waiter(self, group: Group, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(group)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[group]
