"""Who comes when: tenants by time, and those of one time by their number.

Times are whole seconds, and thousands of tenants share one. So only times are compared as such,
and as numbers; among tenants a heap compares what it can compare soonest.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush


class ByTime:
    """Tenants, each at a time; the same one may be there several times."""

    def __init__(self, found: Iterable[tuple[datetime, int]] = ()) -> None:
        self._times: list[float] = []
        self._at: dict[float, tuple[datetime, list[int]]] = {}
        for since, tenant in found:
            self._at.setdefault(since.timestamp(), (since, []))[1].append(tenant)
        self._times = sorted(self._at)
        for _, tenants in self._at.values():
            heapify(tenants)

    def add(self, since: datetime, tenant: int) -> None:
        """Put a tenant where it belongs."""
        # A number is found in half the time that a datetime takes to be hashed.
        time = since.timestamp()
        if (known := self._at.get(time)) is not None:
            heappush(known[1], tenant)
        else:
            self._at[time] = since, [tenant]
            heappush(self._times, time)

    def first(self) -> tuple[datetime, int] | None:
        """Return who comes first, and when; None if there is nobody."""
        if not self._times:
            return None
        since, tenants = self._at[self._times[0]]
        return since, tenants[0]

    def pop(self) -> None:
        """Take out who comes first."""
        _, tenants = self._at[self._times[0]]
        heappop(tenants)
        if not tenants:
            del self._at[heappop(self._times)]

    def tenants(self) -> Iterator[int]:
        """Return everybody, in no order."""
        for _, tenants in self._at.values():
            yield from tenants
