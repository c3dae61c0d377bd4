"""Unblocks tasks whose upstreams have ended, backing off while no task becomes unblocked.

A chain of tasks waits for this, so an end is settled as soon as it is announced. Where many
tasks fan in to one, nearly every pass only decrements that task's counter of open upstreams;
after several such passes in a row, later ones are delayed so that each settles more ends.

Decision: docs/adr/0018-dependency-resolution.md.
"""

from datetime import timedelta

from duly import clock
from duly.store.database import Connection
from duly.store.fleet.servers import Term
from duly.store.tasks import edges
from duly.store.tasks.edges import ResolvedEdges

EDGES_PER_TRANSACTION = 1000
"""How many edges one transaction settles, approximately."""
EDGES_PER_TENANT = 250
"""How many of them may belong to one tenant before the round-robin moves to the next."""
MAX_IDLE_PASSES = 8
"""Consecutive passes that may unblock no task before later ones are delayed."""
IDLE_PAUSE_SECONDS = 0.05
"""The delay after each further idle pass. It also delays chains that run alongside."""
NOTHING_SETTLED = ResolvedEdges([], 0, [], None)


class DependencyResolver:
    """Settles edges for the leader, and decides when the next pass is due."""

    def __init__(self) -> None:
        self._has_pending = False
        self._idle_passes = 0
        self._next_at = float("-inf")
        self._cursor = 0

    def announce_end(self) -> bool:
        """Note that a task may have ended; return True if it can be settled at once."""
        self._has_pending = True
        return self.is_due

    def take_pending(self) -> bool:
        """Return whether announced ends are to be settled now, and clear the mark if so."""
        if not self.is_due:
            return False
        pending, self._has_pending = self._has_pending, False
        return pending

    @property
    def is_due(self) -> bool:
        """Return True unless the delay after an idle pass is still running."""
        return clock.monotonic() >= self._next_at

    @property
    def wait(self) -> timedelta | None:
        """Return how long to wait before the next pass; None if no end was announced.

        An end announced during the delay wakes nobody, so the delay always leads to a pass.
        """
        left = self._next_at - clock.monotonic()
        if left > 0:
            return timedelta(seconds=left)
        return timedelta(0) if self._has_pending else None

    async def settle(self, conn: Connection, term: Term) -> ResolvedEdges:
        """Propagate ends to downstreams. The caller notifies about the tasks returned."""
        settled = await edges.resolve(
            conn, term, limit=EDGES_PER_TRANSACTION, share=EDGES_PER_TENANT, after=self._cursor
        )
        self._cursor = settled.last or 0
        if settled == NOTHING_SETTLED:
            self._idle_passes += 1
            if self._idle_passes > MAX_IDLE_PASSES:
                self._next_at = clock.monotonic() + IDLE_PAUSE_SECONDS
        else:
            self._idle_passes = 0
            self._next_at = float("-inf")
        return settled
