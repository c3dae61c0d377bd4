"""Divides a server's connections between classes of work.

When the database is slow, all connections are in use and callers queue. So the work whose delay
costs most has connections reserved for it: a server that cannot renew its term stops leading, and
a node whose lease is not renewed freezes its tasks. Clients come last and are asked to retry;
tenants share the clients' connections fairly, so that one tenant's slow statements do not block
the others.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from enum import Enum

from duly.errors import Unavailable
from duly.store.connections.fair_semaphore import FairSemaphore

DUTY_CONNECTIONS = 13
"""Reserved for the server's own loops: one connection each, and two for the timekeeper."""
ACQUIRE_TIMEOUT_SECONDS = 5.0
"""How long a caller queues before it is asked to retry."""
RETRY_AFTER = timedelta(seconds=2)
BUSY_MESSAGE = "All database connections for such requests are in use. Try again."


class ConnectionClass(Enum):
    """The kind of work that a connection is borrowed for."""

    DUTY = "duty"
    """A loop of the server itself: terms, rounds, expiry, the group commit."""
    LEASE = "lease"
    """Lease renewals of nodes, which contend with no statement about tasks."""
    NODE = "node"
    """Everything else for nodes: polls, reports, logs."""
    AUTHENTICATION = "authentication"
    """The short credential lookup at the start of every request."""
    CLIENT = "client"
    """Client requests, except those in the group commit."""


class ConnectionClasses:
    """One semaphore per connection class; duties are never limited."""

    def __init__(self, connections: int) -> None:
        slots = dict(slots_per_class(connections))
        self._clients = FairSemaphore(slots.pop(ConnectionClass.CLIENT))
        self._semaphores = {kind: asyncio.Semaphore(count) for kind, count in slots.items()}

    async def acquire(self, kind: ConnectionClass, tenant_id: int | None = None) -> None:
        """Wait for a slot; raises Unavailable after a timeout.

        `tenant_id` is the tenant whose share of the clients' slots is used, if any.
        """
        if kind is ConnectionClass.CLIENT:
            if not self._clients.try_acquire(tenant_id):
                await _wait(self._clients.acquire(tenant_id))
            return
        semaphore = self._semaphores.get(kind)
        if semaphore is None:
            return
        if semaphore.locked():
            await _wait(semaphore.acquire())
        else:
            await semaphore.acquire()

    def release(self, kind: ConnectionClass, tenant_id: int | None = None) -> None:
        """Free a slot for the next waiter."""
        if kind is ConnectionClass.CLIENT:
            self._clients.release(tenant_id)
        elif (semaphore := self._semaphores.get(kind)) is not None:
            semaphore.release()


async def _wait(acquired: Awaitable[object]) -> None:
    try:
        async with asyncio.timeout(ACQUIRE_TIMEOUT_SECONDS):
            await acquired
    except TimeoutError:
        raise Unavailable(BUSY_MESSAGE, RETRY_AFTER) from None


def slots_per_class(connections: int) -> Mapping[ConnectionClass, int]:
    """Return how many connections each class may use at once, besides those of the duties."""
    rest = max(connections - DUTY_CONNECTIONS, 4)
    client = max(rest * 2 // 5, 1)
    lease, authentication = max(rest // 5, 1), max(rest // 8, 1)
    return {
        ConnectionClass.LEASE: lease,
        ConnectionClass.AUTHENTICATION: authentication,
        ConnectionClass.CLIENT: client,
        ConnectionClass.NODE: rest - lease - authentication - client,
    }
