"""One round's look at some lines: what is read of them, and who of it comes first.

Lines of one second and of one shape are of a tenant each, and have no right to come before one
another but that each has its turn: so many tasks of one, then of the next, and nothing is put in
order. All others go by rank. Few tasks are read of each line at first, and of a line of which
enough is known, none.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice

from duly.policy import queueing
from duly.policy.limits import Budget
from duly.policy.queueing import Order
from duly.server.lines import EARLIEST, Pair
from duly.server.remembered import Window
from duly.store import waiting
from duly.store.database import Connection
from duly.store.waiting import Head, Line

AHEAD = 4
"""How many times as much is read as there is room for: to look at a line takes as long as some
tasks of it, and the next rounds will start them. One task that is left tells that no more of its
line come into the window."""
MORE = 4
"""How many times as much is read of a line of which all that was read comes into the window."""

Found = Mapping[Pair, datetime]
"""Lines in their order, and when the first task of each must start."""


class Look:
    """The lines of one round, what is known of them, and what may start of them."""

    def __init__(
        self,
        turn: Found,
        following: Found,
        known: Window,
        rooms: Mapping[int, int],
        size: int,
        budget: Budget,
        order: Order,
    ) -> None:
        """Look at the lines of a `turn`, after which come the `following`.

        At most `size` tasks come first, and of each shape no more than `rooms` says.
        """
        self._turn = turn
        self._following = following
        self._known = known
        self._rooms = rooms
        self._size = size
        self._budget = budget
        self._order = order
        self.offered = 0
        """How many tasks might have come first."""

    async def in_turn(
        self, conn: Connection, lines: int, quantum: int, share: Callable[[Pair], int]
    ) -> Sequence[Head]:
        """Return the first of lines of one second, line by line, so many of each as it may have."""
        # One more than some turns take: what is left then tells when the line comes again.
        each = -(-self._each(lines) // quantum) * quantum + 1
        short = [pair for pair, asked in self._known.asked.items() if asked < share(pair)]
        await self._read(conn, self._unknown() + short, each)
        fronts = self._fronts(self._order.horizon(self._turn), share)
        return list(islice(self._order.within(fronts, self._budget), self._size))

    async def by_rank(self, conn: Connection, lines: int, *, is_scarce: bool) -> Sequence[Head]:
        """Return those that come first of all.

        A line of which all that were read come into the window may have more that do, and is read
        again: of such lines there are the fewer the more is read of each. Where room is not
        scarce, enough is enough, and nobody comes that is behind a line which is not looked at.
        """
        horizon = None if is_scarce else self._order.horizon(self._following)
        left, each = self._unknown(), self._each(lines)
        while True:
            await self._read(conn, left, each)
            fronts = self._fronts(horizon, lambda _: self._size)
            if not is_scarce and self._is_enough(fronts):
                break
            window = queueing.window(fronts, self._size, self._order, self._budget.copy())
            left = self._short(window, is_scarce=is_scarce)
            if not left:
                break
        return queueing.window(fronts, self._size, self._order, self._budget)

    def _unknown(self) -> list[Pair]:
        return [pair for pair in self._turn if pair not in self._known.heads]

    def _each(self, lines: int) -> int:
        """Return how many tasks to read of a line, if a window is shared by so many."""
        return -(-self._size // lines) * AHEAD

    async def _read(self, conn: Connection, pairs: Collection[Pair], each: int) -> None:
        """Read some lines, of one that was read before more than the last time."""
        if not pairs:
            return
        # Of a line that may move, one may start: to ask takes longer than all the rest.
        counts = {
            pair: count if count <= AHEAD else min(count, AHEAD * self._most(pair))
            for pair in pairs
            for count in [max(each, MORE * self._known.asked.get(pair, 0))]
        }
        first = self._known.first
        lines = {
            pair: Line(self._turn[pair], count, first.get(pair)) for pair, count in counts.items()
        }
        self._known.add(counts, await waiting.read_heads(conn, lines))

    def _most(self, pair: Pair) -> int:
        return min(self._rooms[pair[1]], self._budget.room(*pair))

    def _fronts(
        self, horizon: tuple[object, ...] | None, share: Callable[[Pair], int]
    ) -> Collection[Head]:
        """Return who may come into the window: nobody that comes after a horizon.

        What was changed meanwhile may be in two lines; only the lease can tell which is right.
        """
        heads = self._known.heads
        found = (self._until(horizon, heads[pair][: share(pair)]) for pair in self._turn)
        fronts = {head.id: head for head in chain.from_iterable(found)}.values()
        self.offered = len(fronts)
        return fronts

    def _until(self, horizon: tuple[object, ...] | None, found: Sequence[Head]) -> Iterable[Head]:
        """Return the tasks of a line up to a horizon; mostly that is all of them."""
        key = self._order.key
        if horizon is None or not found or key(found[-1]) <= horizon:
            return found
        return [head for head in found if key(head) <= horizon]

    def _is_enough(self, fronts: Collection[Head]) -> bool:
        """Say whether those are enough, all of one second, so that nobody goes before another."""
        if self._order.has_queues or len(fronts) < self._size:
            return False
        ends = (found[end] for found in self._known.heads.values() if found for end in (0, -1))
        return len({head.start_by for head in ends}) == 1

    def _short(self, window: Sequence[Head], *, is_scarce: bool) -> list[Pair]:
        """Return the lines of which more may come into a window than was read."""
        chosen = Counter((one.tenant_id, one.shape_id) for one in window)
        short = [
            pair
            for pair, count in self._known.asked.items()
            if count <= chosen[pair] < self._most(pair)
        ]
        if is_scarce or len(window) < self._size:
            return short
        moment, heads = self._order.moment, self._known.heads
        last = moment(window[-1])
        return [pair for pair in short if moment(heads[pair][-1]) < last]


def are_in_turn(turn: Found, following: Found, order: Order) -> bool:
    """Say whether lines, and more that follow, are of one second; it must be known which one.

    They are in order, so that all are as the first and the last of them are.
    """
    if not following or order.horizon(turn) != order.horizon(following):
        return False
    return next(iter(turn.values())) != EARLIEST
