"""A semaphore that tenants share: none may hold more of it than is still free.

A plain semaphore is fair to requests, so a tenant with many requests gets nearly all of it, and
others wait while its requests wait for each other's row locks. Here a tenant alone gets half of
the turns, and waiting tenants are served round robin.
"""

import asyncio
from collections import deque

Group = int | None
"""A tenant, or None for all that is done for no tenant in particular."""


class SharedTurns:
    """Counts who holds a turn, and queues whoever has its share already."""

    def __init__(self, turns: int) -> None:
        self._free = turns
        self._used: dict[Group, int] = {}
        self._waiting: dict[Group, deque[asyncio.Future[None]]] = {}
        """Never an empty queue; the group that is next in turn comes first."""

    def try_acquire(self, group: Group) -> bool:
        """Take a turn if there is one for `group` now and nobody of it waits."""
        # Of other groups, only those wait that have their share: nobody is overtaken.
        if group in self._waiting or not self._fits(group):
            return False
        self._take(group)
        return True

    async def acquire(self, group: Group) -> None:
        """Wait for a turn, first come, first served within the group."""
        if self.try_acquire(group):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._forget(group, turn)
            else:
                # The turn came just as the wait was cancelled.
                self.release(group)
            raise

    def release(self, group: Group) -> None:
        """Give a turn back, to whoever is next."""
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
        """Pass free turns on until nobody who waits may have one."""
        while self._free:
            fitting = [group for group in self._waiting if self._fits(group)]
            if not fitting:
                return
            group = fitting[0]
            turns = self._waiting.pop(group)
            turn = turns.popleft()
            if turns:
                # Behind the other groups.
                self._waiting[group] = turns
            if not turn.cancelled():
                self._take(group)
                turn.set_result(None)

    def _forget(self, group: Group, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(group)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[group]
