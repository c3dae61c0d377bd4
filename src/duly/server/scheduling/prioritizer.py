"""Decides which subqueues a round considers, and keeps track of those that have work.

The prioritizer remembers which subqueues, that is (tenant, shape) pairs, have work and from when
on: it learns of new ones from submits and finishes, and recounts them about every second from
the index, so that nothing depends on having heard. One round takes those that press most, and
reads of each as many tasks as may come into the window. The window is no larger than what there
is room for: most rounds give to a few tasks what a few others have left, whatever waits.
Where more tenants have work of one second than a round considers, they take turns.

Of the shapes that fit nowhere at the moment only the *claims* are read, and remembered for a
second: the few tasks for which room may have to be kept.

What tenants may have at once is kept to here, before anything is read: of a subqueue that may not
move nothing is read at all, and of the others little more than may start.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import chain

from duly import clock
from duly.config import SchedulingSettings
from duly.policy import queueing
from duly.policy.limits import Budget
from duly.policy.queueing import Order, rank
from duly.server.cursors import Cursors
from duly.server.just_stored import JustStored
from duly.server.lines import Lines, Pair
from duly.server.pace import Pace
from duly.server.window_reader import WindowReader
from duly.store import waiting
from duly.store.database import Connection
from duly.store.waiting import Head, Line

RECOUNT = timedelta(seconds=1)
LONGEST_RECOUNT = timedelta(seconds=5)
COUNTING = 100
"""One part in so many of the time goes into it, at most: what has come is mostly heard of."""
CLAIMING_PAIRS = 30
CLAIMS_PER_PAIR = 8


LATER = 0
"""There is room for a shape once others have ended; more than that, for so many tasks now."""
NEVER = -1
FEWEST_PAIRS = 32
"""How many are considered however little room there is: some may turn out to be empty."""
SPARE_PAIRS = 8
"""One more pair for so many tasks: nearly all of them have something."""


class Prioritizer:
    """Holds the subqueues that may have work, and turns them into a window."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._lines = Lines()
        self._stored = JustStored()
        self._cursors = Cursors()
        self._pace = Pace(RECOUNT, LONGEST_RECOUNT, COUNTING)
        self._turn: dict[Pair, datetime] = {}
        self._is_last = True
        self._served: Pair | None = None
        """The subqueue that had its turn last; those behind it follow."""
        self._read: WindowReader | None = None
        """What the last window was chosen from."""
        self.has_stored = False
        """Whether some of the last window was not read, and may be gone."""
        self.has_more = False
        """Whether more may wait of what the last window was chosen from."""
        self._claims: list[Head] = []
        self._claimed_at = float("-inf")

    def note(self, found: Iterable[tuple[Pair, datetime]]) -> None:
        """Remember that pairs may have work from some time on, and perhaps claims."""
        for pair, since in found:
            self._stored.forget(pair)
            self._cursors.note(pair, (since,))
            self._note(pair, since)

    def note_stored(self, heads: Iterable[Head]) -> None:
        """Remember tasks that were just stored: a subqueue that was empty need not be read."""
        for head in heads:
            pair = head.tenant_id, head.shape_id
            is_new = pair not in self._lines and pair not in self._turn
            self._stored.add(pair, head, is_new=is_new)
            self._cursors.note(pair, rank(head))
            self._note(pair, head.start_by)

    def _note(self, pair: Pair, since: datetime) -> None:
        if self._lines.note(pair, since):
            self._claimed_at = float("-inf")

    def recount(self) -> None:
        """Let the next round find out which pairs have work."""
        self._pace.hurry()
        self._read = None

    def pass_over(self) -> bool:
        """Leave the last round's subqueues out until the next count; False if there are no others.

        For a round of which nothing could be placed: those behind it must have their turn.
        """
        if self._is_last:
            return False
        self.pass_over_lines(self._turn)
        return True

    def pass_over_lines(self, pairs: Iterable[Pair]) -> None:
        """Leave subqueues out until the next count.

        Of a tenant that may start only so much, they came first and could not be placed: those
        behind them must have their turn.
        """
        for pair in pairs:
            self._lines.drop(pair)
            self._stored.doubt()

    async def shapes(self, conn: Connection) -> Sequence[int]:
        """Return the shapes of what waits, recounted if the last count is old."""
        if self._pace.is_due:
            with self._pace.step():
                # What is noted meanwhile may have come too late to be counted.
                self._lines = Lines()
                self._stored.doubt()
                self._cursors.forget()
                counted = Lines(await waiting.pairs_with_work(conn), self._served)
            for pair, since in self._lines.items():
                counted.note(pair, since)
            self._lines = counted
            self._stored.trust()
        return self._lines.shapes()

    @property
    def is_empty(self) -> bool:
        """Say whether nothing is known to wait."""
        return self._lines.is_empty

    @property
    def tenants(self) -> set[int]:
        """Return the tenants that may have work."""
        return self._lines.tenants

    def pairs_of(self, shapes: Set[int]) -> list[Pair]:
        """Return the pairs of some shapes that may have work."""
        return self._lines.of_shapes(shapes)

    async def window(
        self, conn: Connection, rooms: Mapping[int, int], budget: Budget, order: Order
    ) -> Sequence[Head]:
        """Return the tasks that come first among those whose shape fits somewhere.

        `rooms` says for each shape how many there is room for. With the tasks come the claims of
        those that fit nowhere yet: there is nothing to keep from anybody while there is room for
        nobody. A shape of which `rooms` says nothing was noted just now; its turn is the next
        round. All of them together are within the `budget`.
        """
        fitting = [shape for shape, room in rooms.items() if room > LATER]
        size = min(self._settings.window, sum(rooms[shape] for shape in fitting))
        # Taken out before the read: a pair that is noted meanwhile must not be forgotten
        # because the read did not see its task yet.
        turn, following = self._take(fitting, size, budget, order)
        cursors = self._cursors.begin()
        self._read = None
        if not turn:
            return []
        read = WindowReader(turn, following, self._stored.take(), cursors, rooms, budget, order)
        self.has_stored = bool(read.heads)
        try:
            claims = await self._read_claims(conn, rooms, turn, budget, order)
            first = await read.window(conn, size)
        except BaseException:
            self._pace.hurry()
            raise
        self._read = read
        self.has_more = not self._is_last or len(first) == size
        for pair in reversed(turn):
            if found := read.heads[pair]:
                self._lines.note(pair, found[0].start_by, is_next=True)
        if not claims:
            return first
        ids = {head.id for head in chain(*read.heads.values())}
        claims = [one for one in claims if one.id not in ids]
        claims = queueing.window(claims, len(claims), order, budget)
        return sorted([*first, *claims], key=order.key)

    def _take(
        self, shapes: Sequence[int], size: int, budget: Budget, order: Order
    ) -> tuple[dict[Pair, datetime], Mapping[Pair, datetime]]:
        """Take out the subqueues for a window; return the one that follows them, too."""
        turns = order if order.has_queues else None
        count = min(self._settings.window, max(size + size // SPARE_PAIRS, FEWEST_PAIRS))
        self._lines.bring_back(budget)
        self._turn = self._lines.take(shapes, count, budget, turns)
        following = self._lines.first(shapes, 1, budget, turns)
        self._is_last = not following
        self.has_more = not self._is_last
        return dict(self._turn), following

    def keep(self, leased: Set[int]) -> None:
        """Go on from what was leased, all that was tried: others of its second have their turn."""
        read, self._read = self._read, None
        if read is None:
            return
        whole = read.whole
        for pair, found in read.heads.items():
            left = next((head for head in found if head.id not in leased), None)
            is_noted = self._cursors.is_noted(pair)
            if left is None and pair in whole and not is_noted:
                self._lines.drop(pair)
                self._turn.pop(pair, None)
            elif found:
                first = left or found[-1]
                self._cursors.advance(pair, first)
                if first is not found[0] or left is None:
                    self._lines.move_behind(pair, found[0].start_by if is_noted else first.start_by)
                    self._served = pair

    async def _read_claims(
        self,
        conn: Connection,
        rooms: Mapping[int, int],
        turn: Mapping[Pair, datetime],
        budget: Budget,
        order: Order,
    ) -> Sequence[Head]:
        """Return the first tasks that press among those whose shape fits nowhere yet."""
        is_old = clock.monotonic() - self._claimed_at >= RECOUNT.total_seconds()
        if is_old or any((one.tenant_id, one.shape_id) in turn for one in self._claims):
            shapes = [shape for shape, room in rooms.items() if room == LATER]
            late = self._lines.first(shapes, CLAIMING_PAIRS, budget, order)
            lines = {pair: Line(since, CLAIMS_PER_PAIR) for pair, since in late.items()}
            self._claimed_at = clock.monotonic()
            self._claims = [
                head
                for head in (await waiting.read_heads(conn, lines) if lines else [])
                if order.presses(head)
            ]
        return self._claims
