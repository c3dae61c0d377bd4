"""The lines that may have work, each with the time before which nothing of it must start.

A line is a (tenant, shape) pair. Those that press most come first, whoever they belong to and
however many there are: to take some costs what is taken, not what there is.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""When nothing is known of a line but that there is something in it."""
Pair = tuple[int, int]


class Lines:
    """Pairs by the start_by of their first task; `since` is that, or something earlier."""

    def __init__(self, since: Mapping[Pair, datetime] | None = None) -> None:
        self._since = dict(since or {})
        self._heaps: dict[int, list[tuple[datetime, Pair]]] = {}
        for pair, at in self._since.items():
            self._heaps.setdefault(pair[1], []).append((at, pair))
        for heap in self._heaps.values():
            heapify(heap)

    def note(self, pair: Pair, since: datetime) -> bool:
        """Remember that a pair has something from `since` on; say whether that is new."""
        known = self._since.get(pair)
        if known is None or since < known:
            self._since[pair] = since
            heappush(self._heaps.setdefault(pair[1], []), (since, pair))
            return True
        return False

    def items(self) -> Iterable[tuple[Pair, datetime]]:
        """Return every pair with its `since`."""
        return self._since.items()

    def shapes(self) -> list[int]:
        """Return the shapes of which there is something."""
        return [shape for shape in list(self._heaps) if self._top(shape)]

    def tenants_with(self, shape: int) -> list[int]:
        """Return the tenants that have something of a shape."""
        return sorted({pair[0] for _, pair in self._heaps.get(shape, ()) if pair in self._since})

    def take(self, shapes: Iterable[int], count: int) -> dict[Pair, datetime]:
        """Take out the first pairs of some shapes, and return them in order."""
        tops = [(top, shape) for shape in shapes if (top := self._top(shape))]
        heapify(tops)
        taken: dict[Pair, datetime] = {}
        while tops and len(taken) < count:
            (_, pair), shape = heappop(tops)
            taken[pair] = self._since.pop(pair)
            if top := self._top(shape):
                heappush(tops, (top, shape))
        return taken

    def first(self, shapes: Iterable[int], count: int) -> dict[Pair, datetime]:
        """Return the first pairs of some shapes, and leave them where they are."""
        found = self.take(shapes, count)
        for pair, since in found.items():
            self.note(pair, since)
        return found

    def drop(self, pair: Pair) -> None:
        """Forget a pair until somebody notes it again."""
        self._since.pop(pair, None)

    def _top(self, shape: int) -> tuple[datetime, Pair] | None:
        """Return the first entry of a shape, once those are gone that are out of date."""
        heap = self._heaps.get(shape)
        while heap:
            if self._since.get(heap[0][1]) == heap[0][0]:
                return heap[0]
            heappop(heap)
        self._heaps.pop(shape, None)
        return None
