"""Who comes when: tenants by time, and those of one time by a number that says whose turn it is.

Times are whole seconds, and thousands of tenants share one. So only times are compared, and as
numbers themselves; those who share one stand in a row.
"""

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush

Entry = tuple[int, int]
"""A number and a tenant."""


class ByTime:
    """Tenants, each at a time; the same one may be there several times."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._at: dict[float, tuple[datetime, deque[Entry]]] = {}

    def add(self, since: datetime, number: int, tenant: int) -> None:
        """Put a tenant behind all of its time, or before them: its number is none between."""
        # A number is found in half the time that a datetime takes to be hashed.
        time = since.timestamp()
        if (known := self._at.get(time)) is None:
            self._at[time] = since, deque([(number, tenant)])
            heappush(self._times, time)
        elif number < known[1][0][0]:
            known[1].appendleft((number, tenant))
        else:
            known[1].append((number, tenant))

    def first(self) -> tuple[datetime, Entry] | None:
        """Return when the first comes, and who it is; None if there is nobody."""
        if not self._times:
            return None
        since, row = self._at[self._times[0]]
        return since, row[0]

    def pop(self) -> None:
        """Take out who comes first."""
        _, row = self._at[self._times[0]]
        row.popleft()
        if not row:
            del self._at[heappop(self._times)]

    def tenants(self) -> Iterator[int]:
        """Return everybody, in no order."""
        for _, row in self._at.values():
            for _, tenant in row:
                yield tenant
