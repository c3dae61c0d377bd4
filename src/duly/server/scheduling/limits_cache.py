"""What tenants may have at once, as far as they have work; and the budget of a round.

Limits are read once and kept until their revision changes, which every count of what runs
tells. So a change, a suspension or its end counts from the next round on; a lease that was
decided before it is refused (`store/quotas.py`).
"""

from collections.abc import Collection, Iterable, Mapping, Set

from duly.model.limits import UNLIMITED, Limits
from duly.model.resources import NOTHING
from duly.model.shape import Shape
from duly.policy.limits import NO_KEY_USE, NO_USE, Budget, KeyUse, Use
from duly.store import quotas
from duly.store.database import Connection
from duly.store.stock import Stock

UNKNOWN = Shape(NOTHING)
"""What runs and of which nobody can tell what it needs."""


class LimitBook:
    """Remembers the limits of one revision, and who has tasks with keys."""

    def __init__(self) -> None:
        self.revision = 0
        self._limits: dict[int, Limits] = {}
        self._limited: set[int] = set()
        self._with_keys: set[int] = set()
        self._learned: tuple[Set[int], int] | None = None
        """For whom the limits are known, and how many they were."""

    async def learn(self, conn: Connection, tenants: Set[int]) -> None:
        """Make sure that the limits of `tenants` are known, all of one revision.

        It is asked in every round, of ten thousand tenants perhaps. `tenants` may grow and never
        shrinks: as long as it is the same one, and as large, there is nothing to compare.
        """
        known, size = self._learned or (None, 0)
        if known is tenants and size == len(tenants):
            return
        while unknown := tenants - self._limits.keys():
            read = await quotas.read_limits(conn, unknown)
            if read.revision != self.revision:
                self.forget()
                self.revision = read.revision
            self._limits.update(dict.fromkeys(unknown, UNLIMITED) | read.limits)
            self._limited = {one for one, limits in self._limits.items() if limits != UNLIMITED}
        self._learned = tenants, len(tenants)

    def forget(self) -> None:
        """Let everything be read again."""
        self._limits, self._limited, self._learned = {}, set(), None

    def note_keys(self, tenants: Iterable[int]) -> None:
        """Remember which of `tenants` have tasks with keys: those whose limits were known."""
        self._with_keys.update(self._limits.keys() & tenants)

    def counted(self, tenants: Set[int]) -> Set[int]:
        """Return which of `tenants` must be told apart in a count of what runs."""
        return (self._limited | self._with_keys) & tenants

    def budget(self, held: Stock, counted: Collection[int], shapes: Mapping[int, Shape]) -> Budget:
        """Return what the tenants that were counted may still start."""
        return Budget(self._limits, *in_use(held, counted, shapes), shapes)


def in_use(
    held: Stock, counted: Collection[int], shapes: Mapping[int, Shape]
) -> tuple[dict[int, Use], dict[tuple[int, str], KeyUse]]:
    """Return what the tenants that were counted have, and what of it runs under keys."""
    uses = dict.fromkeys(counted, NO_USE)
    keys: dict[tuple[int, str], KeyUse] = {}
    for one in held.in_use:
        if one.tenant_id is None:
            continue
        use, shape = uses[one.tenant_id], shapes.get(one.shape_id, UNKNOWN)
        uses[one.tenant_id] = Use(
            use.running + one.times, use.resources.plus(shape.needs, one.times)
        )
        if (stated := shape.concurrency) is not None:
            under_key = keys.get((one.tenant_id, stated.key), NO_KEY_USE)
            keys[one.tenant_id, stated.key] = KeyUse(
                under_key.running + one.times, min(under_key.limit, stated.limit)
            )
    for reserved in held.reserved:
        if (known := uses.get(reserved.tenant_id)) is not None:
            uses[reserved.tenant_id] = Use(known.running, known.resources.plus(reserved.resources))
    return uses, keys
