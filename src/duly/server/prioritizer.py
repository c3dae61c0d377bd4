"""Reads the heads of the lines, and puts them in order.

The prioritizer remembers which (tenant, shape) pairs have work: it learns of new
ones from submits and finishes, and recounts them every second from
the index, so that nothing depends on having heard. One round looks at a bounded
number of pairs, in rotation, and at a bounded number of tasks of each.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from duly import clock
from duly.config import SchedulingSettings
from duly.policy import queueing
from duly.store import leases
from duly.store.database import Connection
from duly.store.leases import Head

PAIRS_PER_ROUND = 300
RECOUNT = timedelta(seconds=1)


class Prioritizer:
    """Holds the pairs that may have work, and turns them into a window."""

    def __init__(self, settings: SchedulingSettings) -> None:
        self._settings = settings
        self._pairs: dict[tuple[int, int], None] = {}
        self._recounted_at = float("-inf")

    def note(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Remember that pairs may have work now."""
        self._pairs.update(dict.fromkeys(pairs))

    def recount(self) -> None:
        """Let the next round find out which pairs have work."""
        self._recounted_at = float("-inf")

    async def pairs(self, conn: Connection) -> Sequence[tuple[int, int]]:
        """Return the pairs with work, recounted if the last count is old."""
        if clock.monotonic() - self._recounted_at >= RECOUNT.total_seconds():
            self._recounted_at = clock.monotonic()
            self._pairs = dict.fromkeys(await leases.pairs_with_work(conn))
        return list(self._pairs)

    async def window(self, conn: Connection, fits: Callable[[int], bool]) -> Sequence[Head]:
        """Return the tasks that come first among those whose shape `fits` somewhere."""
        turn = [pair for pair in self._pairs if fits(pair[1])][:PAIRS_PER_ROUND]
        if not turn:
            return []
        # Taken out before the read: a pair that is noted meanwhile must not be forgotten
        # because the read did not see its task yet.
        for pair in turn:
            self._pairs.pop(pair, None)
        heads = await leases.read_heads(conn, turn, each=self._settings.window)
        self.note((head.tenant_id, head.shape_id) for head in heads)
        return queueing.window(heads, self._settings.window)
