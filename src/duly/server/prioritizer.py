"""Reads the heads of the lines, and puts them in order.

The prioritizer remembers which (tenant, shape) pairs have work: it learns of new
ones from submits and finishes, and recounts them every second from
the index, so that nothing depends on having heard. One round looks at a bounded
number of pairs, in rotation, and at a bounded number of tasks of each.

Of the shapes that fit nowhere at the moment only the *claims* are read, and remembered for a
second: the few tasks for which room may have to be kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from heapq import nsmallest

from duly import clock
from duly.config import SchedulingSettings
from duly.policy import queueing
from duly.store import leases
from duly.store.database import Connection
from duly.store.leases import Head

PAIRS_PER_ROUND = 300
RECOUNT = timedelta(seconds=1)
CLAIMING_PAIRS = 30
CLAIMS_PER_PAIR = 8
EARLIEST = datetime.min.replace(tzinfo=UTC)
Pair = tuple[int, int]


class Room(Enum):
    """Whether there is room for a shape."""

    NOW = "now"
    LATER = "later"
    """Once others have ended."""
    NEVER = "never"


class Prioritizer:
    """Holds the pairs that may have work, and turns them into a window."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._pairs: dict[Pair, datetime] = {}
        self._recounted_at = float("-inf")
        self._claims: list[Head] = []
        self._claimed_at = float("-inf")

    def note(self, pairs: Iterable[Pair]) -> None:
        """Remember that pairs may have work now, and perhaps claims."""
        for pair in pairs:
            if pair not in self._pairs:
                self._pairs[pair] = EARLIEST
                self._claimed_at = float("-inf")

    def recount(self) -> None:
        """Let the next round find out which pairs have work."""
        self._recounted_at = float("-inf")

    async def pairs(self, conn: Connection) -> Sequence[Pair]:
        """Return the pairs with work, recounted if the last count is old."""
        if clock.monotonic() - self._recounted_at >= RECOUNT.total_seconds():
            self._recounted_at = clock.monotonic()
            self._pairs = await leases.pairs_with_work(conn)
        return list(self._pairs)

    async def window(self, conn: Connection, room: Callable[[int], Room]) -> Sequence[Head]:
        """Return the tasks that come first among those whose shape fits somewhere.

        With them come the claims of those that fit nowhere yet: there is nothing to keep from
        anybody while there is room for nobody.
        """
        rooms = {shape: room(shape) for shape in {shape for _, shape in self._pairs}}
        turn = [pair for pair in self._pairs if rooms[pair[1]] is Room.NOW][:PAIRS_PER_ROUND]
        if not turn:
            return []
        claims = await self._read_claims(conn, rooms, turn)
        # Taken out before the read: a pair that is noted meanwhile must not be forgotten
        # because the read did not see its task yet.
        for pair in turn:
            self._pairs.pop(pair, None)
        heads = await leases.read_heads(conn, turn, each=self._settings.window)
        for head in heads:
            self._pairs.setdefault((head.tenant_id, head.shape_id), head.start_by)
        return sorted([*queueing.window(heads, self._settings.window), *claims], key=queueing.rank)

    async def _read_claims(
        self, conn: Connection, rooms: Mapping[int, Room], turn: Sequence[Pair]
    ) -> Sequence[Head]:
        """Return the first tasks that press among those whose shape fits nowhere yet."""
        late = [pair for pair in self._pairs if rooms[pair[1]] is Room.LATER]
        served = set(turn)
        is_old = clock.monotonic() - self._claimed_at >= RECOUNT.total_seconds()
        if is_old or any((one.tenant_id, one.shape_id) in served for one in self._claims):
            first = nsmallest(CLAIMING_PAIRS, late, key=self._pairs.__getitem__)
            self._claimed_at = clock.monotonic()
            self._claims = (
                [
                    head
                    for head in await leases.read_heads(conn, first, each=CLAIMS_PER_PAIR)
                    if queueing.presses(head)
                ]
                if first
                else []
            )
        return self._claims
