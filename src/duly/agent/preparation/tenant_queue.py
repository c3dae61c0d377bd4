"""A work queue for a few workers of the node, round-robin by tenant.

In FIFO order, one tenant with many or slow items would keep all others waiting.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")


class TenantQueue(Generic[Item]):
    """Waiting items by tenant.

    A tenant occupies at most `max_workers` workers, and at most one while another tenant waits.
    With more workers than that, one is always free for a tenant that had no items.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._waiting: OrderedDict[int, deque[Item]] = OrderedDict()
        """In round-robin order, next tenant first; a tenant without items has no entry."""
        self._at_work: Counter[int] = Counter()
        self._changed = asyncio.Event()

    def put(self, tenant: int, item: Item) -> None:
        """Append an item to the queue of its tenant."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._changed.set()

    async def next_tenant(self) -> int:
        """Wait until an item may be processed, and return its tenant."""
        while (tenant := self._find()) is None:
            self._changed.clear()
            await self._changed.wait()
        return tenant

    @contextmanager
    def take(self, tenant: int) -> Iterator[Item]:
        """Yield the tenant's next item; the tenant then moves to the end of the rotation."""
        items = self._waiting.pop(tenant)
        item = items.popleft()
        if items:
            self._waiting[tenant] = items
        self._at_work[tenant] += 1
        try:
            yield item
        finally:
            self._at_work[tenant] -= 1
            if not self._at_work[tenant]:
                del self._at_work[tenant]
            self._changed.set()

    def _find(self) -> int | None:
        most = self._max_workers if len(self._waiting) == 1 else 1
        return next((tenant for tenant in self._waiting if self._at_work[tenant] < most), None)
