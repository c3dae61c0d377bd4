"""Decides how much more a tenant may run at once: tasks, resources, attempts under a key.

Limits are checked against running tasks and reservations, counted for every scheduling round.
Before the window is chosen, subqueues of which nothing may start are left out, so that they take
no place in it; while it is chosen, every task that enters it is charged to its tenant's budget.
"""

from collections.abc import Hashable, Mapping

import msgspec

from duly.model.limits import Limits
from duly.model.resources import KINDS, NO_RESOURCES, Resources
from duly.model.shape import Shape
from duly.policy.budget.downstream import DownstreamBudget

UNBOUNDED = 2**31
"""Stands for no limit."""
RUNNING = "running"
"""The kind of the limit on the number of running tasks."""


class TenantUsage(msgspec.Struct, frozen=True):
    """A tenant's running tasks and its resources in use, reservations included."""

    running: int = 0
    resources: Resources = NO_RESOURCES


class KeyUsage(msgspec.Struct, frozen=True):
    """The number of attempts running under a concurrency key, and the smallest limit they state."""

    running: int = 0
    limit: int = UNBOUNDED


class BlockingLimit(msgspec.Struct, frozen=True):
    """The limit that keeps one more task from starting, with the figures."""

    code: str
    kind: str = ""
    """`running`, a kind of resource, or the concurrency key."""
    limit: int = 0
    used: int = 0
    needed: int = 1


NO_USAGE = TenantUsage()
NO_KEY_USAGE = KeyUsage()


def blocking_limit(
    limits: Limits, use: TenantUsage, under_key: KeyUsage, shape: Shape
) -> BlockingLimit | None:
    """Return the first limit that keeps a task of a shape from starting; None if there is none."""
    if limits.is_suspended:
        return BlockingLimit("tenant_suspended")
    if limits.max_running is not None and use.running >= limits.max_running:
        return BlockingLimit("tenant_limit", RUNNING, limits.max_running, use.running)
    for kind, limit in (limits.max_resources or {}).items():
        used, needed = amount(use.resources, kind), amount(shape.needs, kind)
        if needed > 0 and used + needed > limit:
            return BlockingLimit("tenant_limit", kind, limit, used, needed)
    if shape.concurrency is not None:
        limit = min(shape.concurrency.limit, under_key.limit)
        if under_key.running >= limit:
            return BlockingLimit(
                "concurrency_limit", shape.concurrency.key, limit, under_key.running
            )
    return None


def startable_count(limits: Limits, use: TenantUsage, needs: Resources) -> int:
    """Return how many more tasks with these needs a tenant may start, concurrency keys aside."""
    if limits.is_suspended:
        return 0
    left = UNBOUNDED if limits.max_running is None else limits.max_running - use.running
    for kind, limit in (limits.max_resources or {}).items():
        if (needed := amount(needs, kind)) > 0:
            left = min(left, (limit - amount(use.resources, kind)) // needed)
    return max(left, 0)


def amount(resources: Resources, kind: str) -> int:
    """Return the amount of a kind of resource, built-in or extra."""
    value: int = getattr(resources, kind) if kind in KINDS else resources.extra.get(kind, 0)
    return value


class Budget:
    """What tenants may still start in a scheduling round.

    Usage is counted for tenants with limits or with keys, of concurrency or of downstreams. A
    tenant whose limits are not cached yet, or that has keys and was not counted, starts nothing in
    this round.
    """

    def __init__(
        self,
        limits: Mapping[int, Limits],
        uses: Mapping[int, TenantUsage],
        keys: Mapping[tuple[int, str], KeyUsage],
        shapes: Mapping[int, Shape],
        downstreams: DownstreamBudget | None = None,
    ) -> None:
        """Start from the counts: `uses` has every counted tenant, `keys` its running attempts."""
        self._limits = limits
        self._uses = dict(uses)
        self._keys = dict(keys)
        self._shapes = shapes
        self.downstreams = downstreams
        """None unless waiting tasks use any."""
        self.uncounted: set[int] = set()
        """Tenants that must be counted before the next round."""

    def copy(self) -> "Budget":
        """Return a copy that can be charged independently."""
        downstreams = None if self.downstreams is None else self.downstreams.copy()
        return Budget(self._limits, self._uses, self._keys, self._shapes, downstreams)

    def update(self, charged: "Budget") -> None:
        """Adopt what was charged to a copy."""
        self._uses, self._keys, self.downstreams = charged._uses, charged._keys, charged.downstreams
        self.uncounted |= charged.uncounted

    def counts(self, tenant: int) -> bool:
        """Return True if leases of the tenant count against a limit."""
        return tenant in self._uses

    def room(self, tenant: int, shape_id: int) -> int:
        """Return how many more tasks of a shape may start under all limits."""
        left, shape = self.tenant_room(tenant, shape_id), self._shapes[shape_id]
        if shape.uses and self.downstreams is not None:
            left = min(left, self.downstreams.room(tenant, shape.uses))
        if (concurrency := shape.concurrency) is None:
            return left
        under_key = self._keys.get((tenant, concurrency.key), NO_KEY_USAGE)
        return max(
            0, min(left, concurrency.limit - under_key.running, under_key.limit - under_key.running)
        )

    def tenant_room(self, tenant: int, shape_id: int) -> int:
        """Return how many more tasks of a shape may start, ignoring its concurrency key."""
        shape, use = self._shapes[shape_id], self._uses.get(tenant)
        if use is not None:
            return startable_count(self._limits[tenant], use, shape.needs)
        return UNBOUNDED if tenant in self._limits and not shape.has_keys else 0

    def cause(self, tenant: int, shape_id: int) -> Hashable | None:
        """Return what blocks a subqueue, equal for those that unblock together; None if nothing."""
        shape, use = self._shapes[shape_id], self._uses.get(tenant)
        if use is None:
            if tenant in self._limits and not shape.has_keys:
                return None
            self.uncounted.add(tenant)
            return "uncounted", tenant
        concurrency = shape.concurrency
        under_key = (
            NO_KEY_USAGE
            if concurrency is None
            else self._keys.get((tenant, concurrency.key), NO_KEY_USAGE)
        )
        blocked_by = blocking_limit(self._limits[tenant], use, under_key, shape)
        if blocked_by is None:
            return self._downstream_cause(tenant, shape)
        if blocked_by.code == "concurrency_limit":
            # The limit is part of the cause: with a higher one, more attempts may run.
            return tenant, concurrency
        # By queue: when room returns, subqueues of the urgent queue must be among those retried.
        if blocked_by.code == "tenant_limit" and blocked_by.kind != RUNNING:
            return tenant, tuple(shape.needs.items()), shape.queue
        return tenant if shape.queue is None else (tenant, shape.queue)

    def _downstream_cause(self, tenant: int, shape: Shape) -> Hashable | None:
        if not shape.uses or self.downstreams is None:
            return None
        blocked_by = self.downstreams.blocking(tenant, shape.uses)
        # By tenant, also if all share the limit: whoever is granted a part of it unblocks alone.
        return None if blocked_by is None else ("downstream", blocked_by.id, tenant, shape.queue)

    def charge(self, tenant: int, shape_id: int) -> bool:
        """Count one more task as started; return False if it may not start."""
        shape = self._shapes[shape_id]
        if (use := self._uses.get(tenant)) is None:
            return tenant in self._limits and not shape.has_keys
        if not self.room(tenant, shape_id):
            return False
        if shape.uses and self.downstreams is not None:
            self.downstreams.charge(tenant, shape.uses)
        self._uses[tenant] = TenantUsage(use.running + 1, use.resources.plus(shape.needs))
        if (concurrency := shape.concurrency) is not None:
            under_key = self._keys.get((tenant, concurrency.key), NO_KEY_USAGE)
            self._keys[tenant, concurrency.key] = KeyUsage(
                under_key.running + 1, min(under_key.limit, concurrency.limit)
            )
        return True
