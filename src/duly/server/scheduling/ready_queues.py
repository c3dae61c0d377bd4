"""The lines that may have work, each with the time before which nothing of it must start.

A line is a (tenant, shape) pair, and so has one queue. Those that press most come first,
whoever they belong to and however many there are: to take some costs what is taken, not what
there is. Those of the same second take turns.

A line that may not move, because its tenant has all that it may have, is set aside with the
others that the same thing keeps. They cost nothing until that has changed, and of a tenant that
may start a little, no more come back than may be of use.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Set
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush, heappushpop
from typing import Protocol

from duly.server.by_time import ByTime

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""When nothing is known of a line but that there is something in it."""
SPARE = 8
"""How many lines of a tenant are taken beyond what it may start: some turn out to be empty."""
Pair = tuple[int, int]
Entry = tuple[datetime, Pair]
Top = tuple[int, datetime, int, Pair]
"""The first line of a shape: its turn, its time, its number among those, and which one it is."""
NOBODY = ByTime()


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

    def __init__(
        self, since: Mapping[Pair, datetime] | None = None, served: Pair | None = None
    ) -> None:
        """Take what is known; those come first that follow the one that was `served` last."""
        self._since: dict[Pair, tuple[datetime, int]] = {}
        self._aside: dict[Hashable, list[Entry]] = {}
        self._kept: dict[Pair, tuple[datetime, Hashable]] = {}
        self._aside_shapes: Counter[int] = Counter()
        self.tenants: set[int] = set()
        """Who has something, or had since this was counted."""
        self._of_shape: dict[int, ByTime] = {}
        self._before = self._behind = 0
        """The numbers of who was last put before, and behind, all others of a time."""
        passed = []
        for pair, at in (since or {}).items():
            if served is None or pair > served:
                self.note(pair, at)
            else:
                passed.append((pair, at))
        for pair, at in passed:
            self.note(pair, at)

    def note(self, pair: Pair, since: datetime, *, is_next: bool = False) -> bool:
        """Remember that a pair has something from `since` on; say whether that is new.

        It comes behind the others of that time, or before them.
        """
        if pair in self._kept:
            # It stays aside: whatever keeps it is looked at anew in every round.
            self._set_aside(self._kept[pair][1], since, pair)
            return False
        known = self._since.get(pair)
        if known is not None and since >= known[0]:
            return False
        if is_next:
            number = self._before = self._before - 1
        else:
            number = self._behind = self._behind + 1
        self._since[pair] = since, number
        tenant, shape = pair
        if (lines := self._of_shape.get(shape)) is None:
            lines = self._of_shape[shape] = ByTime()
        lines.add(since, number, tenant)
        self.tenants.add(tenant)
        return True

    @property
    def is_empty(self) -> bool:
        """Say whether no pair has anything, not even aside."""
        return not self._since and not self._kept

    def __len__(self) -> int:
        """Return how many pairs may have something and are not aside."""
        return len(self._since)

    def __contains__(self, pair: Pair) -> bool:
        """Say whether a pair may have something, if only aside."""
        return pair in self._since or pair in self._kept

    def items(self) -> Iterable[tuple[Pair, datetime]]:
        """Return every pair with its `since`; those that are set aside are not among them."""
        return ((pair, since) for pair, (since, _) in self._since.items())

    def shapes(self) -> list[int]:
        """Return the shapes of which there is something, if only aside."""
        moving = [shape for shape in list(self._of_shape) if self._first(shape)]
        if not self._aside_shapes:
            return moving
        return list({*moving, *self._aside_shapes})

    def of_shapes(self, shapes: Set[int]) -> list[Pair]:
        """Return the pairs of some shapes that have something, if only aside."""
        moving = {
            (tenant, shape)
            for shape in shapes
            for tenant in self._of_shape.get(shape, NOBODY).tenants()
            if (tenant, shape) in self._since
        }
        if not self._aside_shapes.keys() & shapes:
            return sorted(moving)
        return sorted(moving | {pair for pair in self._kept if pair[1] in shapes})

    def take(
        self,
        shapes: Iterable[int],
        count: int,
        gate: Gate | None = None,
        order: Turns | None = None,
    ) -> dict[Pair, datetime]:
        """Take out the first pairs of some shapes that may move, and return them in order."""
        tops = [top for shape in shapes if (top := self._show(shape, order)) is not None]
        heapify(tops)
        taken: dict[Pair, datetime] = {}
        of_tenant: dict[int, int] = {}
        top = heappop(tops) if tops else None
        while top is not None and len(taken) < count:
            _, since, _, pair = top
            self._of_shape[pair[1]].pop()
            del self._since[pair]
            cause = None if gate is None else _cause(gate, pair, of_tenant)
            if cause is None:
                taken[pair] = since
            else:
                self._set_aside(cause, since, pair)
            # Mostly another one of this shape: pushed and popped at once, it moves nothing.
            if (following := self._show(pair[1], order)) is not None:
                top = heappushpop(tops, following)
            else:
                top = heappop(tops) if tops else None
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
        for pair, since in reversed(found.items()):
            self.note(pair, since, is_next=True)
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

    def move_behind(self, pair: Pair, since: datetime) -> None:
        """Put a pair behind the others of a time, from which on it has something."""
        if self._since.pop(pair, None) is not None:
            self.note(pair, since)

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

    def _show(self, shape: int, order: Turns | None) -> Top | None:
        """Return the first line of a shape with its turn, unless that has not come yet."""
        if (first := self._first(shape)) is None:
            return None
        since, (number, tenant) = first
        turn = 0 if order is None else order.turn(shape, since)
        return None if turn is None else (turn, since, number, (tenant, shape))

    def _first(self, shape: int) -> tuple[datetime, tuple[int, int]] | None:
        """Return when the first line of a shape comes, its number and whose it is.

        What is out of date is gone then.
        """
        if (lines := self._of_shape.get(shape)) is None:
            return None
        while (first := lines.first()) is not None:
            number, tenant = first[1]
            known = self._since.get((tenant, shape))
            if known is not None and known[1] == number:
                return first
            lines.pop()
        del self._of_shape[shape]
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
