"""Decides whether it is peak time: whether most of the nodes' resources are in use.

Tasks in the `off_peak` queue do not start at peak time. Only the kinds of resources that a task
needs count: a shortage of GPUs does not delay a task that needs none.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from duly.model.node import Offer
from duly.model.resources import Resources


class ResourceShare(msgspec.Struct, frozen=True):
    """How much of one kind of resource is in use."""

    kind: str
    used: int
    total: int

    @property
    def percent(self) -> float:
        """Return the share in percent."""
        return 100 * self.used / self.total

    def reaches(self, percent: int) -> bool:
        """Return True if at least `percent` is in use."""
        return 100 * self.used >= percent * self.total


NOTHING_USED = ResourceShare("cpu_milli", 0, 1)
"""The share if no node has any of the needed kinds."""


class Load:
    """The resources in use on all nodes, including those that a round has just placed."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        """Count everything not free as used; nodes that take no work are ignored."""
        self._total: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        for offer in offers:
            if offer.takes_work:
                self._total.update(dict(offer.capacity.items()))
                self._used.update(dict(offer.capacity.items()))
                self._used.subtract(dict(offer.free.items()))

    def copy(self) -> "Load":
        """Return a copy that can be added to independently."""
        copy = Load(())
        copy._total, copy._used = self._total, self._used.copy()
        return copy

    def add(self, needs: Resources) -> None:
        """Count a task that is about to start."""
        self._used.update(dict(needs.items()))

    def scarcest(self, needs: Resources) -> ResourceShare:
        """Return the share of the most used kind of resource among those in `needs`."""
        shares = [
            ResourceShare(kind, max(0, self._used[kind]), self._total[kind])
            for kind, amount in needs.items()
            if amount > 0 and self._total[kind] > 0
        ]
        return max(shares, key=lambda share: share.percent, default=NOTHING_USED)
