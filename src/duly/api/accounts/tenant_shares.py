"""Computes the tenants' shares of the nodes, as of one snapshot of the fleet.

The pool are all nodes that take work, whatever their labels. The scheduler divides the pool of
each task in the same way.
"""

from duly.config import SchedulingSettings
from duly.server.scheduling.standings import Standings, read_standings
from duly.store.database import Connection
from duly.store.tasks import subqueues

DIGITS = 6


class TenantShares:
    """The shares of all tenants: fractions from 0 to 1, or None if they cannot be told."""

    def __init__(self, standings: Standings) -> None:
        self._standings = standings

    def share(self, tenant: int) -> float | None:
        """Return what a tenant holds; None if no node is ready."""
        return _fraction(self._standings.share(tenant)) if self._standings.has_nodes else None

    def fair_share(self, tenant: int) -> float | None:
        """Return what a tenant is entitled to; None if it has no tasks that may start."""
        if not self._standings.has_nodes or tenant not in self._standings.waiting:
            return None
        return _fraction(self._standings.fair_share(tenant))


async def read_shares(
    conn: Connection, scheduling: SchedulingSettings, *, with_fair_shares: bool
) -> TenantShares:
    """Read what runs and what waits, and return the shares of all tenants.

    Fair shares take most of the time, because every tenant's limits are checked for them. Tasks
    that are postponed at peak time do not compete.
    """
    nonempty = await subqueues.read_nonempty(conn) if with_fair_shares else {}
    tenants = {tenant for tenant, _ in nonempty}
    return TenantShares(await read_standings(conn, scheduling, nonempty, tenants))


def _fraction(share: float) -> float:
    # Tasks that run on a node whose capacity was lowered may hold more than all of it.
    return round(min(share, 1.0), DIGITS)
