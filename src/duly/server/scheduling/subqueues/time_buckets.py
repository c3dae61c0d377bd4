"""A priority queue of tenants by start_by, first in, first out within one second.

A start_by is a whole second, and thousands of tenants share one. So the heap holds each second
only once, as a number, and the tenants of a second wait in a bucket, ordered by sequence number.
"""

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush

Entry = tuple[int, int]
"""A sequence number and a tenant."""


class TimeBuckets:
    """The tenants that wait with one shape; a tenant may have several entries."""

    def __init__(self) -> None:
        self._heap: list[float] = []
        self._buckets: dict[float, tuple[datetime, deque[Entry]]] = {}

    def push(self, start_by: datetime, sequence: int, tenant: int) -> None:
        """Add a tenant at the back of its bucket, or at the front if `sequence` is the lowest.

        A sequence number between those of the bucket is not allowed.
        """
        # A float hashes in half the time that a datetime takes.
        time = start_by.timestamp()
        if (bucket := self._buckets.get(time)) is None:
            self._buckets[time] = start_by, deque([(sequence, tenant)])
            heappush(self._heap, time)
        elif sequence < bucket[1][0][0]:
            bucket[1].appendleft((sequence, tenant))
        else:
            bucket[1].append((sequence, tenant))

    def peek(self) -> tuple[datetime, Entry] | None:
        """Return the first entry with its start_by; None if there is none."""
        if not self._heap:
            return None
        start_by, entries = self._buckets[self._heap[0]]
        return start_by, entries[0]

    def pop(self) -> None:
        """Remove the first entry."""
        _, entries = self._buckets[self._heap[0]]
        entries.popleft()
        if not entries:
            del self._buckets[heappop(self._heap)]

    def tenants(self) -> Iterator[int]:
        """Yield the tenant of every entry, in no order."""
        for _, entries in self._buckets.values():
            for _, tenant in entries:
                yield tenant
