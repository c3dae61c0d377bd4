"""Who may use how many of a server's connections to PostgreSQL.

When the database is slow, every connection that there is gets used and waited for.
So those whose lateness costs most have connections that nobody else can take: a
server that cannot renew its term stops leading, and a node whose lease is not renewed
freezes its tasks. Clients come last; they are told to try again, and their tenants share what
they have, so that the slow statements of one do not stop the others.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from enum import Enum

from duly.errors import Unavailable
from duly.store.shared_turns import SharedTurns

LOOPS = 11
"""What a server's loops need is never lent out: one connection each, and the timekeeper two."""
PATIENCE = 5.0
"""Seconds to wait for a turn."""
RETRY_AFTER = timedelta(seconds=2)
BUSY = "The server waits for its database, and others wait before this request; try again."


class Lane(Enum):
    """For whom a connection is wanted."""

    DUTY = "duty"
    """A loop of the server itself: terms, rounds, expiry, the group commit."""
    LEASE = "lease"
    """Nodes that renew their leases, which touches nothing that tasks touch."""
    NODE = "node"
    """Whatever else nodes ask and tell: polls, reports, logs."""
    CALLER = "caller"
    """Who is calling: a short look that every request begins with."""
    GUEST = "guest"
    """Clients, for all that is not committed in a group."""


class Lanes:
    """The turns of those who are not a duty."""

    def __init__(self, connections: int) -> None:
        turns = dict(shares(connections))
        self._guests = SharedTurns(turns.pop(Lane.GUEST))
        self._turns = {lane: asyncio.Semaphore(share) for lane, share in turns.items()}

    async def enter(self, lane: Lane, tenant_id: int | None = None) -> None:
        """Wait for a turn; raises Unavailable when it does not come in time.

        `tenant_id` says whose share of the guests' turns it is, None if it is no tenant's.
        """
        if lane is Lane.GUEST:
            if not self._guests.try_acquire(tenant_id):
                await _wait(self._guests.acquire(tenant_id))
            return
        turns = self._turns.get(lane)
        if turns is None:
            return
        if turns.locked():
            await _wait(turns.acquire())
        else:
            await turns.acquire()

    def leave(self, lane: Lane, tenant_id: int | None = None) -> None:
        """Give the turn to the next one."""
        if lane is Lane.GUEST:
            self._guests.release(tenant_id)
        elif (turns := self._turns.get(lane)) is not None:
            turns.release()


async def _wait(turn: Awaitable[object]) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await turn
    except TimeoutError:
        raise Unavailable(BUSY, RETRY_AFTER) from None


def shares(connections: int) -> Mapping[Lane, int]:
    """Return how many connections each lane may use at once, beside those of the loops."""
    rest = max(connections - LOOPS, 4)
    guest = max(rest * 2 // 5, 1)
    lease, caller = max(rest // 5, 1), max(rest // 8, 1)
    return {
        Lane.LEASE: lease,
        Lane.CALLER: caller,
        Lane.GUEST: guest,
        Lane.NODE: rest - lease - caller - guest,
    }
