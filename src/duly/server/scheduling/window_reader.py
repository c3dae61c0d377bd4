"""Reads the heads of the subqueues that a round considers, and merges them into the window.

A few tasks are read of each subqueue at first. One of which all that was read comes into the
window may have more that do, and is read again: of such there are the fewer the more is read.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from itertools import chain

from duly.policy import queueing
from duly.policy.limits import Budget
from duly.policy.queueing import Order
from duly.server.lines import EARLIEST, Pair
from duly.store import waiting
from duly.store.database import Connection
from duly.store.waiting import Head, Line

GROWTH = 4
"""How many times as much is read of a subqueue that is read again."""


class WindowReader:
    """The subqueues of one round, what is known of them, and what may start of them."""

    def __init__(
        self,
        since: Mapping[Pair, datetime],
        following: Mapping[Pair, datetime],
        known: Mapping[Pair, list[Head]],
        cursors: Mapping[Pair, Head],
        rooms: Mapping[int, int],
        budget: Budget,
        order: Order,
    ) -> None:
        """Consider subqueues, each from a start_by on; of those in `known`, all is known.

        Nothing is taken that comes after the first of the `following`, which are not considered,
        unless it is not known when that must start.
        """
        self._since = since
        self._cursors = cursors
        self._rooms = rooms
        self._budget = budget
        self._order = order
        is_known = EARLIEST not in following.values()
        self._horizon = order.horizon(following) if is_known else None
        self.heads = {pair: known[pair] for pair in since if pair in known}
        """The first tasks of each subqueue, by rank."""
        self._asked: dict[Pair, int] = {}

    async def window(self, conn: Connection, size: int) -> Sequence[Head]:
        """Return the tasks that come first, at most `size`, within the budget."""
        left: Collection[Pair] = [pair for pair in self._since if pair not in self.heads]
        each = -(-size // len(self._since)) + 1
        while left:
            await self._read(conn, left, each)
            left = self._cut_short(size)
            if left:
                window = queueing.window(self._fronts(), size, self._order, self._budget.copy())
                chosen = Counter((one.tenant_id, one.shape_id) for one in window)
                left = [pair for pair in left if chosen[pair] == self._asked[pair]]
        return queueing.window(self._fronts(), size, self._order, self._budget)

    @property
    def whole(self) -> Set[Pair]:
        """Return the subqueues of which all is known."""
        return {
            pair
            for pair, found in self.heads.items()
            if pair not in self._asked or len(found) < self._asked[pair]
        }

    async def _read(self, conn: Connection, pairs: Collection[Pair], each: int) -> None:
        for pair in pairs:
            asked = max(each, GROWTH * self._asked.get(pair, 0))
            self._asked[pair] = min(asked, self._most(pair) + 1)
            self.heads[pair] = []
        lines = {
            pair: Line(self._since[pair], self._asked[pair], self._cursors.get(pair))
            for pair in pairs
        }
        for head in await waiting.read_heads(conn, lines):
            self.heads[head.tenant_id, head.shape_id].append(head)

    def _most(self, pair: Pair) -> int:
        return min(self._rooms[pair[1]], self._budget.room(*pair))

    def _fronts(self) -> Collection[Head]:
        """Return all that may come into the window.

        What was changed meanwhile may be in two subqueues; only the lease can tell which is right.
        """
        found = map(self._within_horizon, self.heads.values())
        return {head.id: head for head in chain.from_iterable(found)}.values()

    def _within_horizon(self, found: Sequence[Head]) -> Sequence[Head]:
        key = self._order.key
        if self._horizon is None or not found or key(found[-1]) <= self._horizon:
            return found
        return [head for head in found if key(head) <= self._horizon]

    def _cut_short(self, size: int) -> list[Pair]:
        """Return the subqueues that have more tasks than were read, and may need them."""
        return [
            pair
            for pair, asked in self._asked.items()
            if asked == len(self.heads[pair]) and asked < min(size, self._most(pair))
        ]
