"""The lines that may have work, each with the time before which nothing of it must start.

A line is a (tenant, shape) pair, and so has one queue. Those that press most come first,
whoever they belong to and however many there are: to take some costs what is taken, not what
there is.

A line that may not move, because its tenant has all that it may have, is set aside with the
others that the same thing keeps. They cost nothing until that has changed, and of a tenant that
may start a little, no more come back than may be of use.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from typing import Protocol

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""When nothing is known of a line but that there is something in it."""
SPARE = 8
"""How many lines of a tenant are taken beyond what it may start: some turn out to be empty."""
Pair = tuple[int, int]
Entry = tuple[datetime, Pair]


class Gate(Protocol):
    """Says which lines may move."""

    def cause(self, tenant: int, shape_id: int) -> Hashable | None:
        """Return what keeps a line from moving, the same for lines that it keeps together."""

    def tenant_room(self, tenant: int, shape_id: int) -> int:
        """Return how many tasks of a shape its tenant may start."""


class Turns(Protocol):
    """Says which lines go before which others."""

    def turn(self, shape_id: int, start_by: datetime) -> int | None:
        """Return when it is the turn of a line of a shape, small for early; None for not yet."""


class Lines:
    """Pairs by the start_by of their first task; `since` is that, or something earlier."""

    def __init__(self, since: Mapping[Pair, datetime] | None = None) -> None:
        self._since = dict(since or {})
        self._heaps: dict[int, list[Entry]] = {}
        self._aside: dict[Hashable, list[Entry]] = {}
        self._kept: dict[Pair, tuple[datetime, Hashable]] = {}
        self._aside_shapes: Counter[int] = Counter()
        self.tenants: set[int] = {tenant for tenant, _ in self._since}
        """Who has something, or had since this was counted."""
        for pair, at in self._since.items():
            self._heaps.setdefault(pair[1], []).append((at, pair))
        for heap in self._heaps.values():
            heapify(heap)

    def note(self, pair: Pair, since: datetime) -> bool:
        """Remember that a pair has something from `since` on; say whether that is new."""
        if pair in self._kept:
            # It stays aside: whatever keeps it is looked at anew in every round.
            self._set_aside(self._kept[pair][1], since, pair)
            return False
        known = self._since.get(pair)
        if known is None or since < known:
            self._since[pair] = since
            heappush(self._heaps.setdefault(pair[1], []), (since, pair))
            self.tenants.add(pair[0])
            return True
        return False

    def items(self) -> Iterable[tuple[Pair, datetime]]:
        """Return every pair with its `since`; those that are set aside are not among them."""
        return self._since.items()

    def shapes(self) -> list[int]:
        """Return the shapes of which there is something, if only aside."""
        moving = [shape for shape in list(self._heaps) if self._top(shape)]
        if not self._aside_shapes:
            return moving
        return list({*moving, *self._aside_shapes})

    def tenants_with(self, shape: int) -> list[int]:
        """Return the tenants that have something of a shape, if only aside."""
        return sorted(
            {pair[0] for _, pair in self._heaps.get(shape, ()) if pair in self._since}
            | {tenant for tenant, other in self._kept if other == shape}
        )

    def take(
        self,
        shapes: Iterable[int],
        count: int,
        gate: Gate | None = None,
        order: Turns | None = None,
    ) -> dict[Pair, datetime]:
        """Take out the first pairs of some shapes that may move, and return them in order."""
        tops: list[tuple[int, Entry, int]] = []
        for shape in shapes:
            self._show(shape, tops, order)
        taken: dict[Pair, datetime] = {}
        of_tenant: dict[int, int] = {}
        while tops and len(taken) < count:
            _, (_, pair), shape = heappop(tops)
            since = self._since.pop(pair)
            cause = None if gate is None else _cause(gate, pair, of_tenant)
            if cause is None:
                taken[pair] = since
            else:
                self._set_aside(cause, since, pair)
            self._show(shape, tops, order)
        return taken

    def first(
        self,
        shapes: Iterable[int],
        count: int,
        gate: Gate | None = None,
        order: Turns | None = None,
    ) -> dict[Pair, datetime]:
        """Return the first pairs of some shapes that may move, and leave them where they are."""
        found = self.take(shapes, count, gate, order)
        for pair, since in found.items():
            self.note(pair, since)
        return found

    def bring_back(self, gate: Gate) -> None:
        """Let lines come back that may move again, of each tenant as many as may be of use."""
        for cause in list(self._aside):
            heap = self._aside[cause]
            brought = 0
            while heap:
                since, pair = heap[0]
                if self._kept.get(pair) == (since, cause):
                    now = gate.cause(*pair)
                    if now == cause or brought == gate.tenant_room(*pair) + SPARE:
                        break
                    self._bring(pair, since, now)
                    brought += now is None
                heappop(heap)
            if not heap:
                del self._aside[cause]

    def _bring(self, pair: Pair, since: datetime, cause: Hashable | None) -> None:
        """Let a line come back, or keep it for another cause."""
        del self._kept[pair]
        self._aside_shapes[pair[1]] -= 1
        if not self._aside_shapes[pair[1]]:
            del self._aside_shapes[pair[1]]
        if cause is None:
            self.note(pair, since)
        else:
            self._set_aside(cause, since, pair)

    def drop(self, pair: Pair) -> None:
        """Forget a pair until somebody notes it again."""
        self._since.pop(pair, None)

    def _set_aside(self, cause: Hashable, since: datetime, pair: Pair) -> None:
        known = self._kept.get(pair)
        if known is None:
            self._aside_shapes[pair[1]] += 1
        elif known[0] <= since:
            return
        self._kept[pair] = since, cause
        heappush(self._aside.setdefault(cause, []), (since, pair))

    def _show(self, shape: int, tops: list[tuple[int, Entry, int]], order: Turns | None) -> None:
        """Add the first entry of a shape to the `tops`, unless it is not its turn yet."""
        if (top := self._top(shape)) is None:
            return
        turn = 0 if order is None else order.turn(shape, top[0])
        if turn is not None:
            heappush(tops, (turn, top, shape))

    def _top(self, shape: int) -> Entry | None:
        """Return the first entry of a shape, once those are gone that are out of date."""
        heap = self._heaps.get(shape)
        while heap:
            if self._since.get(heap[0][1]) == heap[0][0]:
                return heap[0]
            heappop(heap)
        self._heaps.pop(shape, None)
        return None


def _cause(gate: Gate, pair: Pair, of_tenant: dict[int, int]) -> Hashable | None:
    """Return why a line is set aside: what keeps it, or that enough of its tenant are taken."""
    found = gate.cause(*pair)
    if found is not None:
        return found
    tenant = pair[0]
    taken = of_tenant[tenant] = of_tenant.get(tenant, 0) + 1
    # Most have a line or two: what they may start need not be asked for.
    return tenant if taken > SPARE and taken > gate.tenant_room(*pair) + SPARE else None
