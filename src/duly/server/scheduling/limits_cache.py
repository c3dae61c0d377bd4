"""Caches the limits and weights of tenants with waiting tasks, and makes the budget of a round.

Limits and queues are cached until their revision changes, which every snapshot of the fleet
reports. So a changed limit, a suspension or a pause, and its end, apply from the next round on; a
lease that was decided before the change is refused (`store/attempts/quota_fence.py`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from duly.model.limits import UNLIMITED, Limits
from duly.model.node import Offer
from duly.model.queues.queue import BUILT_IN_QUEUES, QueueDefinitions
from duly.model.resources import NO_RESOURCES
from duly.model.shape import Shape
from duly.policy.budget.limits import NO_KEY_USAGE, NO_USAGE, Budget, KeyUsage, TenantUsage
from duly.policy.budget.queue_room import UNLIMITED_ROOM, QueueRoom, fleet_capacity, held_by_queue
from duly.store.attempts import quota_fence
from duly.store.database import Connection
from duly.store.fleet.fleet_snapshot import FleetSnapshot

UNKNOWN_SHAPE = Shape(NO_RESOURCES)
"""Stands for the shape of a running attempt whose resources could not be read."""


class LimitsCache:
    """The limits of one revision, and which tenants have tasks with concurrency keys."""

    def __init__(self) -> None:
        self.revision = 0
        self._limits: dict[int, Limits] = {}
        self.weights: dict[int, int] = {}
        """By tenant."""
        self.queues: QueueDefinitions = BUILT_IN_QUEUES
        self._limited: set[int] = set()
        self._with_keys: set[int] = set()
        self._loaded: tuple[Set[int], int] | None = None
        """The tenants that `load` was last called with, and how many they were."""

    async def load(self, conn: Connection, tenants: Set[int]) -> None:
        """Read the limits of `tenants` that are not cached, all of one revision.

        Every round calls this, perhaps with ten thousand tenants. `tenants` may grow and never
        shrinks: the same set of the same size has nothing new to read.
        """
        loaded, size = self._loaded or (None, 0)
        if loaded is tenants and size == len(tenants):
            return
        while missing := tenants - self._limits.keys():
            granted = await quota_fence.read_limits(conn, missing)
            if granted.revision != self.revision:
                self.invalidate()
                self.revision = granted.revision
            self._limits.update(dict.fromkeys(missing, UNLIMITED) | granted.limits)
            self.weights.update(granted.weights)
            self.queues = granted.queues
            self._limited = {
                tenant for tenant, limits in self._limits.items() if limits != UNLIMITED
            }
        self._loaded = tenants, len(tenants)

    def invalidate(self) -> None:
        """Have all limits read again."""
        self._limits, self._limited, self._loaded = {}, set(), None
        self.weights = {}

    def add_tenants_with_keys(self, tenants: Iterable[int]) -> None:
        """Count usage of those `tenants` whose limits are cached: they have tasks with keys."""
        self._with_keys.update(self._limits.keys() & tenants)

    def tenants_to_count(self, tenants: Set[int]) -> Set[int]:
        """Return those of `tenants` whose running attempts must be counted by tenant."""
        return (self._limited | self._with_keys) & tenants

    def budget(
        self, snapshot: FleetSnapshot, counted: Collection[int], shapes: Mapping[int, Shape]
    ) -> Budget:
        """Return what the tenants that were counted may still start."""
        return Budget(self._limits, *count_usage(snapshot, counted, shapes), shapes)


def queue_room(
    queues: QueueDefinitions,
    snapshot: FleetSnapshot,
    offers: Sequence[Offer],
    shapes: Mapping[int, Shape],
) -> QueueRoom:
    """Return what the tasks of each queue may still start."""
    if not queues.is_restricted:
        return UNLIMITED_ROOM
    running = ((use.shape_id, use.times) for use in snapshot.in_use)
    held = held_by_queue(running, shapes, queues)
    return QueueRoom(queues, shapes, fleet_capacity(offers), held, snapshot.now)


def count_usage(
    snapshot: FleetSnapshot, counted: Collection[int], shapes: Mapping[int, Shape]
) -> tuple[dict[int, TenantUsage], dict[tuple[int, str], KeyUsage]]:
    """Return what the tenants that were counted use, and how much of it runs under each key."""
    uses = dict.fromkeys(counted, NO_USAGE)
    keys: dict[tuple[int, str], KeyUsage] = {}
    for in_use in snapshot.in_use:
        if (tenant := in_use.tenant_id) is None or tenant not in uses:
            continue
        use, shape = uses[tenant], shapes.get(in_use.shape_id, UNKNOWN_SHAPE)
        uses[tenant] = TenantUsage(
            use.running + in_use.times, use.resources.plus(shape.needs, in_use.times)
        )
        if (concurrency := shape.concurrency) is not None:
            under_key = keys.get((tenant, concurrency.key), NO_KEY_USAGE)
            keys[tenant, concurrency.key] = KeyUsage(
                under_key.running + in_use.times, min(under_key.limit, concurrency.limit)
            )
    for reserved in snapshot.reserved:
        if (reserving := uses.get(reserved.tenant_id)) is not None:
            uses[reserved.tenant_id] = TenantUsage(
                reserving.running, reserving.resources.plus(reserved.resources)
            )
    return uses, keys
