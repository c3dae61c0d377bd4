"""Lets tasks go on whose upstreams have ended, and does not count down for nothing.

A chain waits for this, so an end is settled as soon as it is heard of. Where many tasks end
for which one waits, nearly every look would count that one down and set nobody free; so
after some of those in a row, the next ones wait until there is more to tell.
"""

from datetime import timedelta

from duly import clock
from duly.store import edges
from duly.store.database import Connection
from duly.store.edges import Settled
from duly.store.servers import Term

EDGES = 1000
"""How many edges are counted down in one transaction, about."""
SHARE = 250
"""How many of them are one tenant's, before it is the next one's turn."""
IN_VAIN = 8
"""So many looks in a row that set nobody free are nothing unusual."""
PAUSE = 0.05
"""Seconds to wait after each further one; it may keep a chain waiting that runs beside."""
NOTHING = Settled([], 0, [], None)


class Settler:
    """Settles edges for the leader, at its own pace."""

    def __init__(self) -> None:
        self._is_told = False
        self._in_vain = 0
        self._next_at = float("-inf")
        self._last = 0

    def tell(self) -> bool:
        """Take in that a task may have ended; say whether it is to be settled at once."""
        self._is_told = True
        return self.is_due

    def take(self) -> bool:
        """Say whether ends were told that are to be settled now; from now on others are."""
        if not self.is_due:
            return False
        told, self._is_told = self._is_told, False
        return told

    @property
    def is_due(self) -> bool:
        """Say whether enough time has passed since a look in vain."""
        return clock.monotonic() >= self._next_at

    @property
    def rest(self) -> timedelta | None:
        """Return how long to wait before the next look; None if nobody told of anything.

        Who tells of an end before that does not wake anybody, so it is never left out.
        """
        left = self._next_at - clock.monotonic()
        if left > 0:
            return timedelta(seconds=left)
        return timedelta(0) if self._is_told else None

    async def settle(self, conn: Connection, term: Term) -> Settled:
        """Tell dependants of ends; whoever calls lets others know of what became of them."""
        settled = await edges.settle(conn, term, limit=EDGES, share=SHARE, after=self._last)
        self._last = settled.last or 0
        if settled == NOTHING:
            self._in_vain += 1
            if self._in_vain > IN_VAIN:
                self._next_at = clock.monotonic() + PAUSE
        else:
            self._in_vain = 0
            self._next_at = float("-inf")
        return settled
