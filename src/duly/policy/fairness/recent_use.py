"""Keeps the recent use of tenants, by which those beyond their fair share take turns.

Recent use is the average of a tenant's share, in which a moment counts half as much as one that
came a half-life later. Shares alone change by whole tasks: of ten slots, tenants with the weights
1, 2 and 4 would get 1.4 : 2.1 : 3.5.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from heapq import heappop, heappush
from math import inf, log2

HALF_LIFE_SECONDS = 30.0
CHARGED_SECONDS = 1.0
"""While the window fills, a task that is chosen counts in recent use as if it had run so long."""
CHARGE_FACTOR = 1 - 2 ** (-CHARGED_SECONDS / HALF_LIFE_SECONDS)
START_SECONDS = 0.01
"""Every task that starts counts for so long more, about what it costs to start one: tenants whose
tasks are too short to be seen running take turns all the same."""
START_FACTOR = 1 - 2 ** (-START_SECONDS / HALF_LIFE_SECONDS)
ROUNDING = 1e-9


class RecentUse:
    """The decaying average of the shares that tenants hold of one pool."""

    def __init__(self, half_life_seconds: float = HALF_LIFE_SECONDS) -> None:
        self._half_life = half_life_seconds
        self._averages: dict[int, tuple[float, float, float]] = {}
        """By tenant: the average at some time, the share since then, and the time in seconds."""
        self._holding: set[int] = set()
        """The tenants whose share was not zero when it was last observed."""

    def observe(self, shares: Mapping[int, float], now: float) -> None:
        """Take in the shares of all tenants that hold anything; they last until the next call."""
        for tenant in self._holding - shares.keys():
            self._set(tenant, 0.0, now)
        for tenant, share in shares.items():
            self._set(tenant, share, now)
        self._holding = {tenant for tenant, share in shares.items() if share > 0}

    def of(self, tenant: int, now: float) -> float:
        """Return the average of a tenant's share, from 0 to 1."""
        if (entry := self._averages.get(tenant)) is None:
            return 0.0
        average, share, since = entry
        if average == share:
            return average
        left: float = 2 ** ((since - now) / self._half_life)
        return share + (average - share) * left

    def forget(self, now: float, below: float = 1e-7) -> None:
        """Drop tenants that hold nothing and whose average no longer counts."""
        self._averages = {
            tenant: entry
            for tenant, entry in self._averages.items()
            if tenant in self._holding or self.of(tenant, now) >= below
        }

    def __len__(self) -> int:
        """Return the number of tenants with an average."""
        return len(self._averages)

    def charge(self, tenant: int, share: float, now: float) -> None:
        """Count a task that takes `share` as if it had run for `START_SECONDS`."""
        average, held, since = self._averages.get(tenant, (0.0, 0.0, now))
        self._averages[tenant] = average + START_FACTOR * share, held, since

    def _set(self, tenant: int, share: float, now: float) -> None:
        self._averages[tenant] = self.of(tenant, now), share, now


class UseOrder:
    """Tenants by recent use per weight.

    All averages halve in the same time. So the logarithm of a tenant's use, plus the time in
    half-lives, stays what it is while the tenant holds nothing, and only grows while it holds
    something. An entry that has become too low is corrected when it comes up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._members: set[int] = set()

    def add(self, tenants: Iterable[int]) -> None:
        """Add tenants; those that are new come up first, and are put where they belong."""
        for tenant in tenants:
            if tenant not in self._members:
                self._members.add(tenant)
                heappush(self._heap, (-inf, tenant))

    def lowest_first(
        self, use_of: Callable[[int], float | None], now: float
    ) -> Generator[int, None, None]:
        """Yield tenants by their use, lowest first; a tenant whose use is None is dropped.

        What was yielded comes back when the iterator is closed.
        """
        yielded: list[tuple[float, int]] = []
        try:
            while self._heap:
                stored, tenant = heappop(self._heap)
                use = use_of(tenant)
                if use is None:
                    self._members.discard(tenant)
                    continue
                actual = -inf if use <= 0 else log2(use) + now / HALF_LIFE_SECONDS
                if actual > stored + ROUNDING and self._heap and self._heap[0][0] < actual:
                    heappush(self._heap, (actual, tenant))
                else:
                    yielded.append((actual, tenant))
                    yield tenant
        finally:
            for entry in yielded:
                heappush(self._heap, entry)
