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
Where more tenants have work of one second than a round looks at, they take turns.

Of the shapes that fit nowhere at the moment only the *claims* are read, and remembered for a
second: the few tasks for which room may have to be kept.

What tenants may have at once is kept to here, before anything is read: of a line that may not
move nothing is read at all, and of the others little more than may start.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import chain

from duly import clock
from duly.config import SchedulingSettings
from duly.policy import queueing
from duly.policy.limits import Budget
from duly.policy.queueing import Order
from duly.server.lines import Lines, Pair
from duly.server.look import Found, Look, are_in_turn
from duly.server.pace import Pace
from duly.server.remembered import Remembered
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
TURN = 4
"""How many tasks of a line start before the others of its second have their turn."""
SPARE_PAIRS = 8
"""One more pair for so many tasks: nearly all of them have something."""


class Prioritizer:
    """Holds the lines that may have work, and turns them into a window."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._lines = Lines()
        self._remembered = Remembered()
        self._pace = Pace(RECOUNT, LONGEST_RECOUNT, COUNTING)
        self._turn: dict[Pair, datetime] = {}
        self._is_last = True
        self._quantum = TURN
        """How many tasks of a line start before the others of its second have their turn."""
        self._started: dict[Pair, int] = {}
        """How many tasks of a line were placed in its turn so far."""
        self._served: Pair | None = None
        """The line that had its turn last; those behind it follow."""
        self.has_more = False
        """Whether the last window had all that it could have, and others may have their turn."""
        self._depth = 1
        """How many tasks of a line may start, as far as the last windows tell."""
        self._claims: list[Head] = []
        self._claimed_at = float("-inf")

    def note(self, found: Iterable[tuple[Pair, datetime]]) -> None:
        """Remember that pairs may have work from some time on, and perhaps claims."""
        for pair, since in found:
            self._remembered.note_unseen(pair, since)
            self._note(pair, since)

    def note_stored(self, heads: Iterable[Head]) -> None:
        """Remember tasks that were just stored: a line that was empty need not be read."""
        for head in heads:
            pair = head.tenant_id, head.shape_id
            self._remembered.note_stored(pair, head, is_new=pair not in self._lines)
            self._note(pair, head.start_by)

    def _note(self, pair: Pair, since: datetime) -> None:
        if self._lines.note(pair, since):
            self._claimed_at = float("-inf")

    def recount(self) -> None:
        """Let the next round find out which pairs have work."""
        self._pace.hurry()
        self._remembered.forget_window()

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
            self._remembered.doubt()

    async def shapes(self, conn: Connection) -> Sequence[int]:
        """Return the shapes of what waits, recounted if the last count is old."""
        if self._pace.is_due:
            with self._pace.step():
                # What is noted meanwhile may have come too late to be counted.
                self._lines = Lines()
                self._remembered.forget()
                counted = Lines(await waiting.pairs_with_work(conn), self._served)
            for pair, since in self._lines.items():
                counted.note(pair, since)
            self._lines = counted
            self._remembered.be_sure()
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
        self._quantum = max(TURN, size // FEWEST_PAIRS)
        # While there is room for the next window, too, it does not matter which come first of those
        # of one second, and a few lines are as good as many.
        is_scarce = any(rooms[shape] < 2 * size for shape in fitting)
        # Of one shape a tenant has one line, and where nobody has room kept for it, all that is in
        # the window starts. Else some would have had their turn without starting anything.
        may_take_turns = len(fitting) == 1 and LATER not in rooms.values()
        # Taken out before the read: a pair that is noted meanwhile must not be forgotten
        # because the read did not see its task yet.
        turn, following, is_in_turn = self._take(
            fitting, size, budget, order, is_scarce=is_scarce, may_take_turns=may_take_turns
        )
        self._turn, self._is_last = turn, not following
        self.has_more = not self._is_last
        if not turn:
            self._remembered.forget_window()
            return []
        known = self._remembered.begin(turn)
        look = Look(turn, following, known, rooms, size, budget, order)
        try:
            claims = await self._read_claims(conn, rooms, turn, budget, order)
            if is_in_turn:
                is_scarce = False
                lines = len(turn) + len(self._lines)
                first = await look.in_turn(conn, lines, self._quantum, self._share)
            else:
                lines = len(turn) + (0 if is_scarce else len(self._lines))
                first = await look.by_rank(conn, lines, is_scarce=is_scarce)
        except BaseException:
            self._pace.hurry()
            raise
        self._remembered.end(known)
        served = Counter((head.tenant_id, head.shape_id) for head in first)
        if len(first) < size:
            self._depth = max(len(first) // len(turn), 1)
        elif not is_scarce:
            self._depth = max(min(2 * self._depth, look.offered // len(turn)), 1)
        self._bring_back(known.heads, served)
        self.has_more |= sum(map(len, known.heads.values())) >= self._settings.window
        if not claims:
            return first
        ids = {head.id for head in chain(*known.heads.values())}
        claims = [one for one in claims if one.id not in ids]
        claims = queueing.window(claims, len(claims), order, budget)
        return sorted([*first, *claims], key=order.key)

    def _take(
        self,
        shapes: Sequence[int],
        size: int,
        budget: Budget,
        order: Order,
        *,
        is_scarce: bool,
        may_take_turns: bool,
    ) -> tuple[dict[Pair, datetime], Found, bool]:
        """Take out the lines for a window, few if those do.

        Returns the one that follows, too, and whether all of them take turns.
        """
        turns = order if order.has_queues else None
        self._lines.bring_back(budget)
        taken = self._lines.take(shapes, self._most(-(-size // self._depth)), budget, turns)
        following = self._lines.first(shapes, 1, budget, turns)
        is_in_turn = may_take_turns and are_in_turn(taken, following, order)
        if is_scarce and following and not is_in_turn:
            taken |= self._lines.take(shapes, self._most(size) - len(taken), budget, turns)
            following = self._lines.first(shapes, 1, budget, turns)
        return taken, following, is_in_turn

    def _most(self, wanted: int) -> int:
        """Return how many lines to look at, if so many of them are wanted."""
        return min(self._settings.window, max(wanted + wanted // SPARE_PAIRS, FEWEST_PAIRS))

    def _share(self, pair: Pair) -> int:
        """Return how many tasks of a line may start before the others have their turn."""
        return max(self._quantum - self._started.get(pair, 0), 1)

    def _bring_back(self, heads: Mapping[Pair, list[Head]], served: Mapping[Pair, int]) -> None:
        """Put lines back where they were, and those that have had their turn behind all others."""
        over = []
        for pair in reversed(self._turn):
            if not (found := heads[pair]):
                continue
            count = self._started.get(pair, 0) + served.get(pair, 0)
            if count >= self._quantum:
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
        for pair, first in self._remembered.keep(leased):
            if first is None:
                self._lines.drop(pair)
                self._started.pop(pair, None)
            else:
                self._lines.put_off(pair, first.start_by)

    @property
    def has_remembered(self) -> bool:
        """Say whether some of the last window was only remembered, and may be gone."""
        return self._remembered.is_in_use

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
