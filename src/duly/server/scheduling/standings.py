"""Reads how the tenants stand against each other now, for answers that any server may give.

The scheduler's own code builds the shares, so that an answer is what it would decide now. Recent
use is known to the leader alone; it decides between tenants beyond their fair shares.
"""

from collections.abc import Collection, Mapping, Set
from datetime import datetime

import msgspec

from duly.config import SchedulingSettings
from duly.model.node import Offer
from duly.model.queues.peak import NO_PEAK, PeakState
from duly.model.resources import NO_RESOURCES
from duly.model.shape import Shape
from duly.policy import placement
from duly.policy.budget.limits import Budget
from duly.policy.budget.queue_room import QueueRoom
from duly.policy.fairness.shares import PoolShares
from duly.policy.fairness.turns import Shares, SubqueueKey, user_of
from duly.server.offload import offload
from duly.server.scheduling.fair_shares import FairShares
from duly.server.scheduling.limits_cache import count_usage, queue_room
from duly.server.scheduling.peak_time import order_at
from duly.store.attempts import leases, quota_fence
from duly.store.attempts.quota_fence import TenantLimits
from duly.store.database import Connection
from duly.store.fleet import fleet_snapshot, servers
from duly.store.fleet.fleet_snapshot import FleetSnapshot

ASKED_SHAPE = -1
"""Stands for the shape whose pool is asked for."""
ANY_NODE = Shape(NO_RESOURCES)
"""Its pool are all nodes."""


class Standings(msgspec.Struct, frozen=True):
    """The shares of the pool of one shape, and of the pools of all waiting tasks."""

    shares: Shares
    waiting: Mapping[int, Set[int]]
    """The shapes of every tenant's tasks that its limits allow and a connected node could run."""
    has_nodes: bool
    """Whether the pool has a node that takes tasks."""

    def share(self, tenant: int) -> float:
        """Return what a tenant holds of the pool, from 0 to 1."""
        return self.shares.pools[ASKED_SHAPE].share(tenant)

    def fair_share(self, tenant: int) -> float:
        """Return what a tenant may hold of the pool before it has to wait for others."""
        return self.shares.pools[ASKED_SHAPE].fair_share(tenant)

    def is_entitled(self, tenant: int) -> bool:
        """Return True if a tenant is entitled to a task of the shape."""
        return self.shares.is_entitled((tenant, ASKED_SHAPE))

    def entitled_tenants(self) -> set[int]:
        """Return the tenants that are entitled to a waiting task which may run in the pool."""
        pools = self.shares.pools
        asked = pools[ASKED_SHAPE].pool
        near = {shape for shape, pool in pools.items() if asked.overlaps(pool.pool)} - {ASKED_SHAPE}
        return {
            tenant
            for tenant, theirs in self.waiting.items()
            if any(self.shares.is_entitled((tenant, shape)) for shape in theirs & near)
        }

    def user_shares(self, tenant: int) -> PoolShares | None:
        """Return how the users of a tenant divide its fair share of the pool, if they do."""
        return self.shares.users.get((tenant, self.shares.pools[ASKED_SHAPE]))

    def entitled_users(self, tenant: int) -> set[int]:
        """Return the users of a tenant that are entitled to a waiting task for the pool."""
        pool, users = self.shares.pools[ASKED_SHAPE], self.user_shares(tenant)
        return {
            user
            for shape in self.waiting.get(tenant, frozenset()) - {ASKED_SHAPE}
            if users is not None
            and self.shares.pools[shape] is pool
            and users.is_entitled(
                user := user_of(self.shares.shapes[shape]), self.shares.fractions(shape)
            )
        }


async def read_standings(
    conn: Connection,
    scheduling: SchedulingSettings,
    nonempty: Mapping[SubqueueKey, datetime],
    tenants: Set[int],
    shape: Shape = ANY_NODE,
    *,
    competitor: int | None = None,
) -> Standings:
    """Read what runs, and return the shares of the pool of `shape`.

    `nonempty` are the subqueues with waiting tasks, with their earliest start_by; those of
    `tenants` compete if their limits allow it and they are not postponed at peak time. The tenant
    `competitor` competes in any case.
    """
    snapshot = await fleet_snapshot.read_snapshot(conn, tenants=None)
    granted = await quota_fence.read_limits(conn, tenants)
    ids = snapshot.shapes | {shape_id for _, shape_id in nonempty}
    shapes = dict(await leases.read_shapes(conn, sorted(ids)))
    shapes[ASKED_SHAPE] = shape
    stored = await servers.read_peak(conn) if nonempty else NO_PEAK
    work = len(snapshot.in_use) + len(nonempty)
    return await offload(
        work, _divide, snapshot, shapes, nonempty, granted, competitor, scheduling, stored
    )


def _divide(
    snapshot: FleetSnapshot,
    shapes: Mapping[int, Shape],
    start_bys: Mapping[SubqueueKey, datetime],
    granted: TenantLimits,
    competitor: int | None,
    scheduling: SchedulingSettings,
    stored: PeakState,
) -> Standings:
    offers = snapshot.free(shapes)
    order = order_at(stored, shapes, granted.queues, offers, scheduling, snapshot.now)
    nonempty = [
        (tenant, shape)
        for (tenant, shape), start_by in start_bys.items()
        if shape in shapes and order.precedence(shape, start_by) is not None
    ]
    placeable = _placeable({shape for _, shape in nonempty} & shapes.keys(), shapes, offers)
    room = queue_room(granted.queues, snapshot, offers, shapes)
    waiting = _startable(snapshot, shapes, nonempty, granted, placeable, room)
    if competitor is not None:
        waiting.setdefault(competitor, set()).add(ASKED_SHAPE)
    shares = FairShares().of_round(
        snapshot, offers, shapes, waiting, placeable | {ASKED_SHAPE}, granted.weights
    )
    return Standings(shares, waiting, bool(shares.pools[ASKED_SHAPE].pool.nodes))


def _startable(
    snapshot: FleetSnapshot,
    shapes: Mapping[int, Shape],
    nonempty: Collection[SubqueueKey],
    granted: TenantLimits,
    placeable: Set[int],
    room: QueueRoom,
) -> dict[int, set[int]]:
    """Return the placeable shapes of which each tenant, and its queue, may start a task."""
    tenants = granted.limits.keys()
    budget = Budget(granted.limits, *count_usage(snapshot, tenants, shapes), shapes)
    startable: dict[int, set[int]] = {}
    for tenant, shape in nonempty:
        is_possible = tenant in tenants and shape in placeable and room.of(shape)
        if is_possible and budget.room(tenant, shape):
            startable.setdefault(tenant, set()).add(shape)
    return startable


def _placeable(ids: Set[int], shapes: Mapping[int, Shape], offers: Collection[Offer]) -> set[int]:
    """Return the shapes that some connected node could run."""
    nodes = [offer.profile for offer in offers]
    fits_by_kind: dict[str, bool] = {}
    placeable = set()
    for shape_id in ids:
        shape = shapes[shape_id]
        if (kind := shape.kind) not in fits_by_kind:
            fits_by_kind[kind] = placement.could_ever_fit(shape, nodes)
        if fits_by_kind[kind]:
            placeable.add(shape_id)
    return placeable
