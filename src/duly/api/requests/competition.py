"""Finds out how a waiting task stands against those of other tenants, for `duly why`.

The scheduler's own code builds the shares, so that the explanation is what it would decide now.
Recent use is known to the leader alone; it decides between tenants beyond their fair shares.
"""

from collections.abc import Mapping

from duly.model.node import NodeProfile, Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy import placement
from duly.policy.explanation.competition import Competition
from duly.policy.limits import Budget
from duly.policy.turns import Shares
from duly.server.scheduling.fair_shares import FairShares
from duly.server.scheduling.limits_cache import count_usage
from duly.store.attempts import leases, quota_fence
from duly.store.database import Connection
from duly.store.fleet import fleet_snapshot
from duly.store.tasks import subqueues

OWN_SHAPE = -1
"""Stands for the shape of the task that is explained."""
MAX_SUBQUEUES = 5000
"""With more subqueues, nothing is said of other tenants: it would take too long."""


async def read_competition(
    conn: Connection, tenant_id: int, needs: Resources, requires: Mapping[str, str]
) -> Competition | None:
    """Return the shares that decide about a waiting task; None if no other tenant competes."""
    nonempty = await subqueues.read_nonempty(conn)
    tenants = {tenant for tenant, _ in nonempty} | {tenant_id}
    if len(tenants) == 1 or len(nonempty) > MAX_SUBQUEUES:
        return None
    snapshot = await fleet_snapshot.read_snapshot(conn, tenants=None)
    granted = await quota_fence.read_limits(conn, tenants)
    ids = snapshot.shapes | {shape for _, shape in nonempty}
    shapes = dict(await leases.read_shapes(conn, sorted(ids)))
    budget = Budget(granted.limits, *count_usage(snapshot, tenants, shapes), shapes)
    waiting: dict[int, set[int]] = {tenant_id: {OWN_SHAPE}}
    for tenant, shape in nonempty:
        if shape in shapes and budget.room(tenant, shape):
            waiting.setdefault(tenant, set()).add(shape)
    shapes[OWN_SHAPE] = Shape(needs, dict(requires))
    offers = snapshot.free(shapes)
    shares = FairShares().of_round(
        snapshot, offers, shapes, waiting, _placeable(waiting, shapes, offers), granted.weights
    )
    return _competition(tenant_id, shares, waiting)


def _placeable(
    waiting: Mapping[int, set[int]], shapes: Mapping[int, Shape], offers: list[Offer]
) -> set[int]:
    """Return the shapes of waiting tasks that some connected node could run."""
    nodes = [NodeProfile(offer.capacity, offer.labels) for offer in offers]
    return {
        shape
        for shape in set().union(*waiting.values())
        if placement.could_ever_fit(shapes[shape], nodes)
    }


def _competition(
    tenant_id: int, shares: Shares, waiting: Mapping[int, set[int]]
) -> Competition | None:
    if OWN_SHAPE not in shares.pools:
        return None
    pool = shares.pools[OWN_SHAPE]
    return Competition(
        share=pool.share(tenant_id),
        fair_share=pool.fair_share(tenant_id),
        is_entitled=shares.is_entitled((tenant_id, OWN_SHAPE)),
        entitled_tenants=sum(
            any(
                shares.pools.get(shape) is pool and shares.is_entitled((tenant, shape))
                for shape in theirs
            )
            for tenant, theirs in waiting.items()
            if tenant != tenant_id
        ),
    )
