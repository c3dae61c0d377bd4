"""Decides what more a tenant may have at once: tasks that run, resources, attempts under a key.

It goes by what runs and what is reserved, counted anew for every round. Before the window is
chosen it says of which lines something may start, so that what may not start takes nobody's
place; and while it is chosen, every task is charged that comes into it.
"""

from collections.abc import Hashable, Mapping

import msgspec

from duly.model.limits import Limits
from duly.model.resources import KINDS, NOTHING, Resources
from duly.model.shape import Shape

MANY = 2**31
"""As good as no limit."""
RUNNING = "running"
"""The kind of a limit that counts tasks."""


class Use(msgspec.Struct, frozen=True):
    """What a tenant has: tasks that run, and resources, those included that it has reserved."""

    running: int = 0
    resources: Resources = NOTHING


class KeyUse(msgspec.Struct, frozen=True):
    """How many attempts run under a key, and the smallest limit that one of them states."""

    running: int = 0
    limit: int = MANY


class Bar(msgspec.Struct, frozen=True):
    """What keeps one more task from starting, with the figures."""

    code: str
    kind: str = ""
    """`running`, a kind of resources, or the key."""
    limit: int = 0
    used: int = 0
    needed: int = 1


NO_USE = Use()
NO_KEY_USE = KeyUse()


def bar(limits: Limits, use: Use, under_key: KeyUse, shape: Shape) -> Bar | None:
    """Return the first thing that keeps a task of a shape from starting; None if nothing does."""
    if limits.is_suspended:
        return Bar("tenant_suspended")
    if limits.max_running is not None and use.running >= limits.max_running:
        return Bar("tenant_limit", RUNNING, limits.max_running, use.running)
    for kind, limit in (limits.max_resources or {}).items():
        used, needed = amount(use.resources, kind), amount(shape.needs, kind)
        if needed > 0 and used + needed > limit:
            return Bar("tenant_limit", kind, limit, used, needed)
    if shape.concurrency is not None:
        limit = min(shape.concurrency.limit, under_key.limit)
        if under_key.running >= limit:
            return Bar("concurrency_limit", shape.concurrency.key, limit, under_key.running)
    return None


def room(limits: Limits, use: Use, needs: Resources) -> int:
    """Return how many more tasks that need so much a tenant may start, its keys aside."""
    if limits.is_suspended:
        return 0
    left = MANY if limits.max_running is None else limits.max_running - use.running
    for kind, limit in (limits.max_resources or {}).items():
        if (needed := amount(needs, kind)) > 0:
            left = min(left, (limit - amount(use.resources, kind)) // needed)
    return max(left, 0)


def amount(resources: Resources, kind: str) -> int:
    """Return how much there is of a kind, which may be an extra one."""
    found: int = getattr(resources, kind) if kind in KINDS else resources.extra.get(kind, 0)
    return found


class Budget:
    """What tenants may still start in a round.

    A tenant is counted if it has limits, or tasks with keys. Of one whose limits nobody knows
    yet, or that has tasks with keys and was not counted, nothing starts before the next round.
    """

    def __init__(
        self,
        limits: Mapping[int, Limits],
        uses: Mapping[int, Use],
        keys: Mapping[tuple[int, str], KeyUse],
        shapes: Mapping[int, Shape],
    ) -> None:
        """Begin with what was counted: `uses` has every tenant that was, `keys` what runs."""
        self._limits = limits
        self._uses = dict(uses)
        self._keys = dict(keys)
        self._shapes = shapes
        self.uncounted: set[int] = set()
        """Whom it was asked about in vain."""

    def copy(self) -> "Budget":
        """Return another that can be charged without this one."""
        return Budget(self._limits, self._uses, self._keys, self._shapes)

    def counts(self, tenant: int) -> bool:
        """Say whether what is leased to a tenant may count against a limit."""
        return tenant in self._uses

    def room(self, tenant: int, shape_id: int) -> int:
        """Return how many more tasks of a shape may start."""
        left = self.tenant_room(tenant, shape_id)
        if (asked := self._shapes[shape_id].concurrency) is None:
            return left
        under_key = self._keys.get((tenant, asked.key), NO_KEY_USE)
        return max(
            0, min(left, asked.limit - under_key.running, under_key.limit - under_key.running)
        )

    def tenant_room(self, tenant: int, shape_id: int) -> int:
        """Return how many more tasks of a shape may start, but for its key."""
        shape, use = self._shapes[shape_id], self._uses.get(tenant)
        if use is not None:
            return room(self._limits[tenant], use, shape.needs)
        return MANY if tenant in self._limits and shape.concurrency is None else 0

    def cause(self, tenant: int, shape_id: int) -> Hashable | None:
        """Return what keeps a line from moving: the same for lines that begin to move together."""
        shape, use = self._shapes[shape_id], self._uses.get(tenant)
        if use is None:
            if tenant in self._limits and shape.concurrency is None:
                return None
            self.uncounted.add(tenant)
            return "uncounted", tenant
        asked = shape.concurrency
        under_key = NO_KEY_USE if asked is None else self._keys.get((tenant, asked.key), NO_KEY_USE)
        found = bar(self._limits[tenant], use, under_key, shape)
        if found is None:
            return None
        if found.code == "concurrency_limit":
            # The limit is part of it: with another one, more may run.
            return tenant, asked
        # Each queue by itself: of those that come back, the urgent must be among them.
        if found.code == "tenant_limit" and found.kind != RUNNING:
            return tenant, tuple(shape.needs.items()), shape.queue
        return tenant if shape.queue is None else (tenant, shape.queue)

    def charge(self, tenant: int, shape_id: int) -> bool:
        """Count one more task as started, if it may start."""
        if not self.room(tenant, shape_id):
            return False
        if (use := self._uses.get(tenant)) is None:
            return True
        shape = self._shapes[shape_id]
        self._uses[tenant] = Use(use.running + 1, use.resources.plus(shape.needs))
        if (asked := shape.concurrency) is not None:
            under_key = self._keys.get((tenant, asked.key), NO_KEY_USE)
            self._keys[tenant, asked.key] = KeyUse(
                under_key.running + 1, min(under_key.limit, asked.limit)
            )
        return True
