"""Computes the tenants' shares of the nodes, as of one snapshot of the fleet.

The pool are all nodes that take work, whatever their labels. The scheduler divides the pool of
each task in the same way; what it remembers of recent use is in the leader's memory alone.
"""

from collections.abc import Mapping, Sequence, Set

from duly.model.node import Offer
from duly.model.shape import Shape
from duly.policy import placement
from duly.policy.limits import Budget
from duly.policy.recent_use import RecentUse
from duly.policy.shares import Competitors, Pool, PoolShares, contested_kinds
from duly.policy.turns import SubqueueKey
from duly.server.offload import offload
from duly.server.scheduling.limits_cache import count_usage
from duly.store.attempts import leases, quota_fence
from duly.store.attempts.quota_fence import TenantLimits
from duly.store.database import Connection
from duly.store.fleet import fleet_snapshot
from duly.store.fleet.fleet_snapshot import FleetSnapshot
from duly.store.tasks import subqueues

DIGITS = 6


class TenantShares:
    """The shares of all tenants: fractions from 0 to 1, or None if they cannot be told."""

    def __init__(self, shares: PoolShares | None, competing: Set[int]) -> None:
        """Take the shares of the pool, None if no node is ready, and who competes for it."""
        self._shares = shares
        self._competing = competing

    def share(self, tenant: int) -> float | None:
        """Return what a tenant holds; None if no node is ready."""
        return None if self._shares is None else _fraction(self._shares.share(tenant))

    def fair_share(self, tenant: int) -> float | None:
        """Return what a tenant is entitled to; None if it has no tasks that may start."""
        if self._shares is None or tenant not in self._competing:
            return None
        return _fraction(self._shares.fair_share(tenant))


async def read_shares(conn: Connection, *, with_fair_shares: bool) -> TenantShares:
    """Read what runs and what waits, and return the shares of all tenants.

    Fair shares take most of the time, because every tenant's limits are checked for them.
    """
    snapshot = await fleet_snapshot.read_snapshot(conn, tenants=None)
    waiting = (await subqueues.read_nonempty(conn)).keys()
    shape_ids = snapshot.shapes | {shape for _, shape in waiting}
    shapes = await leases.read_shapes(conn, sorted(shape_ids))
    tenants = {tenant for tenant, _ in waiting} if with_fair_shares else ()
    granted = await quota_fence.read_limits(conn, tenants)
    work = len(snapshot.in_use) + len(waiting)
    return await offload(work, _divide, snapshot, shapes, waiting, granted)


def _divide(
    snapshot: FleetSnapshot,
    shapes: Mapping[int, Shape],
    waiting: Set[SubqueueKey],
    granted: TenantLimits,
) -> TenantShares:
    offers = snapshot.free(shapes)
    needs = [
        *((use.tenant_id, use.shape_id) for use in snapshot.in_use if use.tenant_id is not None),
        *waiting,
    ]
    kinds = contested_kinds((tenant, shapes[shape]) for tenant, shape in needs if shape in shapes)
    pool = Pool({}, offers, kinds)
    if not pool.nodes:
        return TenantShares(None, frozenset())
    competing = _competing(snapshot, offers, shapes, waiting, granted)
    competitors = Competitors(competing, granted.weights)
    shares = PoolShares(pool, granted.weights, competitors, RecentUse(), snapshot.now.timestamp())
    for use in snapshot.in_use:
        shape = shapes.get(use.shape_id)
        if use.tenant_id is None or shape is None:
            continue
        if use.incarnation_id in pool.incarnations:
            shares.hold_shape(use.tenant_id, use.shape_id, shape, use.times)
    for reserved in snapshot.reserved:
        if reserved.node_id in pool.nodes:
            shares.hold(reserved.tenant_id, reserved.resources)
    return TenantShares(shares, competing)


def _competing(
    snapshot: FleetSnapshot,
    offers: Sequence[Offer],
    shapes: Mapping[int, Shape],
    waiting: Set[SubqueueKey],
    granted: TenantLimits,
) -> set[int]:
    """Return the tenants in `granted` with tasks that their limits allow and a node could run."""
    tenants = granted.limits.keys()
    budget = Budget(granted.limits, *count_usage(snapshot, tenants, shapes), shapes)
    fits_by_kind: dict[str, bool] = {}
    fitting = set()
    for shape_id in {shape for tenant, shape in waiting if tenant in tenants} & shapes.keys():
        shape = shapes[shape_id]
        if (kind := shape.kind) not in fits_by_kind:
            fits_by_kind[kind] = any(placement.could_fit(shape, offer) for offer in offers)
        if fits_by_kind[kind]:
            fitting.add(shape_id)
    return {
        tenant
        for tenant, shape in waiting
        if tenant in tenants and shape in fitting and budget.room(tenant, shape) > 0
    }


def _fraction(share: float) -> float:
    # Tasks that run on a node whose capacity was lowered may hold more than all of it.
    return round(min(share, 1.0), DIGITS)
