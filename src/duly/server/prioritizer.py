"""Reads the heads of the lines, and puts them in order.

The prioritizer remembers which lines, that is (tenant, shape) pairs, have work and from when
on: it learns of new ones from submits and finishes, and recounts them about every second from
the index, so that nothing depends on having heard. One round takes those that press most, and
reads of each as many tasks as may come into the window. The window is no larger than what there
is room for: most rounds give to a few tasks what a few others have left, whatever waits.

A line is read on from the task where the last look ended, or from the time on that is known of it.
Tasks that have left it stay in the index for a while, and for as long as somebody holds an old
snapshot; without a place to begin, every round would walk over them. What was read and not given
anything is remembered for the next round. Both hold until something comes into the line that may go
before it. A task that has left its line meanwhile is not leased.

While there is room for the next window, too, it does not matter who comes first of those that must
start in the same second, and some lines are as good as all: fewer are taken, and more of each.

Of the shapes that fit nowhere at the moment only the *claims* are read, and remembered for a
second: the few tasks for which room may have to be kept.

What tenants may have at once is kept to here, before anything is read: of a line that may not
move nothing is read at all, and of the others little more than may start.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import chain

from duly import clock
from duly.config import SchedulingSettings
from duly.policy import queueing
from duly.policy.limits import Budget
from duly.policy.queueing import Order, Rank, rank
from duly.server.lines import Lines, Pair
from duly.server.pace import Pace
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
"""How many are looked at however little room there is: of some, little may be known."""
MOST_STORED = 16
"""How many tasks of a line are remembered until the next round: more are read as quickly."""
AHEAD = 4
"""How many times as much is read as there is room for: to look at a line takes as long as some
tasks of it, and the next rounds will start them. One task that is left tells that no more of its
line come into the window."""
TURN = 4
"""How many tasks of a line start before the others of its second have their turn."""
MORE = 4
"""How many times as much is read of a line of which all that was read comes into the window."""
SPARE_PAIRS = 8
"""One more pair for so many tasks: nearly all of them have something."""


Place = tuple[datetime] | Rank
"""Where something is in its line: a time, before all that must start by then, or a task."""


class Prioritizer:
    """Holds the lines that may have work, and turns them into a window."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._lines = Lines()
        self._pace = Pace(RECOUNT, LONGEST_RECOUNT, COUNTING)
        self._turn: dict[Pair, datetime] = {}
        self._is_last = True
        self._started: dict[Pair, int] = {}
        """How many tasks of a line were placed in its turn so far."""
        self._served: Pair | None = None
        """The line that had its turn last; those behind it follow."""
        self._horizon: tuple[object, ...] | None = None
        """Whatever ranks higher may come after a line that the last window has not looked at."""
        self.has_more = False
        """Whether the last window had all that it could have, and others may have their turn."""
        self._stored: dict[Pair, list[Head]] = {}
        """All that is in some lines, as far as one has heard: they were empty before it came.

        As it came; who looks at it has to put it in order."""
        self._is_sure = False
        """Whether a line of which nothing is known is empty."""
        self._ahead: dict[Pair, list[Head]] = {}
        """The first tasks of some lines, which an earlier round has read and left."""
        self._first: dict[Pair, Head] = {}
        """Tasks before which all of their line have gone; they may have, too."""
        self._read: dict[Pair, list[Head]] = {}
        """What the last window was chosen from."""
        self._whole: Set[Pair] = frozenset()
        """The lines of which that was all there is."""
        self.has_remembered = False
        """Whether some of that was only remembered, and may be gone."""
        self._noted: dict[Pair, Place] | None = None
        """Where something may have come into lines since then; None between two rounds."""
        self._depth = 1
        """How many tasks of a line may start, as far as the last windows tell."""
        self._claims: list[Head] = []
        self._claimed_at = float("-inf")

    def note(self, found: Iterable[tuple[Pair, datetime]]) -> None:
        """Remember that pairs may have work from some time on, and perhaps claims."""
        for pair, since in found:
            self._stored.pop(pair, None)
            self._note(pair, (since,))

    def note_stored(self, heads: Iterable[Head]) -> None:
        """Remember tasks that were just stored: a line that was empty need not be read."""
        for head in heads:
            pair = head.tenant_id, head.shape_id
            stored = self._stored.get(pair)
            if stored is None and self._is_sure and pair not in self._lines:
                stored = self._stored[pair] = []
            if stored is not None:
                stored.append(head)
                if len(stored) > MOST_STORED:
                    del self._stored[pair]
            self._note(pair, rank(head))

    def _note(self, pair: Pair, place: Place) -> None:
        ahead, first = self._ahead.get(pair), self._first.get(pair)
        if ahead is not None and place < rank(ahead[-1]):
            del self._ahead[pair]
        if first is not None and place < rank(first):
            del self._first[pair]
        if self._noted is not None:
            self._noted[pair] = min(place, self._noted.get(pair, place))
        if self._lines.note(pair, place[0]):
            self._claimed_at = float("-inf")

    def recount(self) -> None:
        """Let the next round find out which pairs have work."""
        self._pace.hurry()
        self._forget_window()

    def pass_over(self) -> bool:
        """Leave the last round's lines out until the next count; False if there are no others.

        For a round of which nothing could be placed: those behind it must have their turn.
        """
        if self._is_last:
            return False
        self.pass_over_lines(self._turn)
        return True

    def pass_over_lines(self, pairs: Iterable[Pair]) -> None:
        """Leave lines out until the next count.

        Of a tenant that may start only so much, they came first and could not be placed: those
        behind them must have their turn.
        """
        for pair in pairs:
            self._lines.drop(pair)
            self._is_sure = False

    async def shapes(self, conn: Connection) -> Sequence[int]:
        """Return the shapes of what waits, recounted if the last count is old."""
        if self._pace.is_due:
            with self._pace.step():
                # What is noted meanwhile may have come too late to be counted.
                self._lines, self._stored, self._is_sure = Lines(), {}, False
                self._ahead, self._first = {}, {}
                counted = Lines(await waiting.pairs_with_work(conn), self._served)
            for pair, since in self._lines.items():
                counted.note(pair, since)
            self._lines, self._is_sure = counted, True
            self._started = {pair: n for pair, n in self._started.items() if pair in counted}
        return self._lines.shapes()

    @property
    def is_empty(self) -> bool:
        """Say whether nothing is known to wait."""
        return self._lines.is_empty

    @property
    def tenants(self) -> set[int]:
        """Return the tenants that may have work."""
        return self._lines.tenants

    def tenants_with(self, shape: int) -> list[int]:
        """Return the tenants that have something of a shape."""
        return self._lines.tenants_with(shape)

    async def window(
        self, conn: Connection, rooms: Mapping[int, int], budget: Budget, order: Order
    ) -> Sequence[Head]:
        """Return the tasks that come first among those whose shape fits somewhere.

        `rooms` says for each shape how many there is room for. With the tasks come the claims of
        those that fit nowhere yet: there is nothing to keep from anybody while there is room for
        nobody. A shape of which `rooms` says nothing was noted just now; its turn is the next
        round. All of them together are within the `budget`.
        """
        # Taken out before the read: a pair that is noted meanwhile must not be forgotten
        # because the read did not see its task yet.
        fitting = [shape for shape, room in rooms.items() if room > LATER]
        size = min(self._settings.window, sum(rooms[shape] for shape in fitting))
        # While there is room for the next window, too, it does not matter which come first of those
        # of one second, and a few lines are as good as many.
        is_scarce = any(rooms[shape] < 2 * size for shape in fitting)
        wanted = size if is_scarce else -(-size // self._depth)
        most = min(self._settings.window, max(wanted + wanted // SPARE_PAIRS, FEWEST_PAIRS))
        self._lines.bring_back(budget)
        turns = order if order.has_queues else None
        turn = self._lines.take(fitting, most, budget, turns)
        following = self._lines.first(fitting, 1, budget, turns)
        self._turn, self._is_last = turn, not following
        self._horizon = None if is_scarce else order.horizon(following)
        self.has_more = not self._is_last
        self._forget_window()
        if not turn:
            return []
        self._noted = {}
        stored, self._stored = self._stored, {}
        is_sure, self._is_sure = self._is_sure, False
        try:
            claims = await self._read_claims(conn, rooms, turn, budget, order)
            heads = await self._read_heads(
                conn, turn, stored, rooms, size, budget, order, is_scarce=is_scarce
            )
        except BaseException:
            self._pace.hurry()
            raise
        self._is_sure = is_sure
        self._read = heads
        fronts = self._fronts(heads, size, order)
        first = queueing.window(fronts, size, order, budget)
        if len(first) < size:
            self._depth = max(len(first) // len(heads), 1)
        elif not is_scarce:
            self._depth = max(min(2 * self._depth, len(fronts) // len(heads)), 1)
        self._bring_back(heads, Counter((head.tenant_id, head.shape_id) for head in first))
        self.has_more |= sum(map(len, heads.values())) >= self._settings.window
        if claims:
            known = {head.id for head in chain(*heads.values())}
            claims = [one for one in claims if one.id not in known]
            claims = queueing.window(claims, len(claims), order, budget)
        return sorted([*first, *claims], key=order.key)

    def _fronts(
        self, heads: Mapping[Pair, list[Head]], size: int, order: Order
    ) -> Collection[Head]:
        """Return who may come into a window: nobody that comes after a line that was not taken.

        What was changed meanwhile may be in two lines; only the lease can tell which is right.
        """
        found = (_until(self._horizon, found[:size], order) for found in heads.values() if found)
        return {head.id: head for head in chain.from_iterable(found)}.values()

    def _bring_back(self, heads: Mapping[Pair, list[Head]], served: Mapping[Pair, int]) -> None:
        """Put lines back where they were, and those that have had their turn behind all others."""
        over = []
        for pair in reversed(self._turn):
            if not (found := heads[pair]):
                continue
            count = self._started.get(pair, 0) + served.get(pair, 0)
            if count >= TURN:
                over.append(pair)
            else:
                self._started[pair] = count
                self._lines.note(pair, found[0].start_by, is_next=True)
        for pair in reversed(over):
            self._started.pop(pair, None)
            self._lines.note(pair, heads[pair][0].start_by)
            self._served = pair

    def keep(self, leased: Set[int]) -> None:
        """Remember what of the last window's lines was not leased; all that was tried was."""
        since = self._noted or {}
        for pair, found in self._read.items():
            left = [head for head in found if head.id not in leased]
            noted = since.get(pair)
            if left and (noted is None or noted > rank(left[-1])):
                self._ahead[pair] = left
            elif not left and noted is None and pair in self._whole:
                self._lines.drop(pair)
                continue
            if found:
                self._go_on(pair, left[0] if left else found[-1], noted)
        self._forget_window()

    def _go_on(self, pair: Pair, first: Head, noted: Place | None) -> None:
        """Remember a task before which all of its line have gone, but for what was noted."""
        if noted is None or noted > rank(first):
            self._first[pair] = first
        if noted is None:
            self._lines.put_off(pair, first.start_by)

    def _forget_window(self) -> None:
        self._read, self._noted, self.has_remembered = {}, None, False

    async def _read_heads(
        self,
        conn: Connection,
        turn: Mapping[Pair, datetime],
        stored: Mapping[Pair, list[Head]],
        rooms: Mapping[int, int],
        size: int,
        budget: Budget,
        order: Order,
        *,
        is_scarce: bool,
    ) -> dict[Pair, list[Head]]:
        """Return of each pair the tasks that may come into the window.

        Few of each at first, and no more than may start in some rounds. A pair of which all that
        were read come into the window may have more that do, and is read again: of such pairs
        there are the fewer the more is read of each. Where room is not scarce, enough is enough.
        A pair of which enough is known is not read.
        """
        heads = {pair: sorted(stored[pair], key=rank) for pair in turn if pair in stored}
        ahead = {pair: self._ahead.pop(pair) for pair in turn if pair in self._ahead}
        first = {pair: self._first.pop(pair) for pair in turn if pair in self._first}
        asked = {pair: len(found) for pair, found in ahead.items() if pair not in heads}
        heads = ahead | heads
        self.has_remembered = bool(heads)

        def most(pair: Pair) -> int:
            return min(rooms[pair[1]], budget.room(*pair))

        left = [pair for pair in turn if pair not in heads]
        each = _share(size, len(turn) + (0 if is_scarce else len(self._lines))) * AHEAD
        while left or asked:
            if left:
                read: dict[Pair, list[Head]] = {pair: [] for pair in left}
                # Of a line that may move, one may start: to ask takes longer than all the rest.
                counts = {
                    pair: count if count <= AHEAD else min(count, AHEAD * most(pair))
                    for pair in left
                    for count in [max(each, MORE * asked.get(pair, 0))]
                }
                lines = {
                    pair: Line(turn[pair], count, first.get(pair)) for pair, count in counts.items()
                }
                for head in await waiting.read_heads(conn, lines):
                    read[head.tenant_id, head.shape_id].append(head)
                heads.update(read)
                asked.update(counts)
            if not is_scarce and _are_equal(heads, size, order):
                break
            fronts = self._fronts(heads, size, order)
            window = queueing.window(fronts, size, order, budget.copy())
            chosen = Counter((one.tenant_id, one.shape_id) for one in window)
            left = [pair for pair, count in asked.items() if count <= chosen[pair] < most(pair)]
            if not is_scarce and len(window) == size:
                last = order.moment(window[-1])
                left = [pair for pair in left if order.moment(heads[pair][-1]) < last]
            if not left:
                break
        self._whole = {
            pair for pair, found in heads.items() if pair in stored or len(found) < asked[pair]
        }
        return heads

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


def _share(size: int, lines: int) -> int:
    """Return how many tasks of each line there is room for in a window."""
    return -(-size // lines)


def _until(
    horizon: tuple[object, ...] | None, found: Sequence[Head], order: Order
) -> Sequence[Head]:
    """Return the tasks of a line up to a horizon; mostly that is all of them."""
    if horizon is None or order.key(found[-1]) <= horizon:
        return found
    return [head for head in found if order.key(head) <= horizon]


def _are_equal(heads: Mapping[Pair, list[Head]], size: int, order: Order) -> bool:
    """Say whether there are enough for a window, all of one second, so that nobody goes before."""
    if order.has_queues or sum(map(len, heads.values())) < size:
        return False
    return len({found[end].start_by for found in heads.values() if found for end in (0, -1)}) == 1
