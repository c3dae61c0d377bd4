"""Decides whether it is peak time: whether most of what the nodes have is in use.

Work that was asked for `off_peak` does not begin then. What counts is what the task itself
needs: that all GPUs are taken is no reason to put off what needs none.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from duly.model.node import Offer
from duly.model.resources import Resources


class Share(msgspec.Struct, frozen=True):
    """How much is in use of the resource that is scarcest for somebody."""

    kind: str
    used: int
    total: int

    @property
    def percent(self) -> float:
        """Return it as people say it."""
        return 100 * self.used / self.total

    def reaches(self, percent: int) -> bool:
        """Say whether so much or more is in use."""
        return 100 * self.used >= percent * self.total


NONE_OF_IT = Share("cpu_milli", 0, 1)
"""Where nobody has any of what is needed, nothing of it is in use."""


class Load:
    """What is in use of all that the nodes have, and what a round adds to it."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        """Count what is not free as used; nodes that take nothing more are left out."""
        self._total: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        for offer in offers:
            if offer.takes_work:
                self._total.update(dict(offer.capacity.items()))
                self._used.update(dict(offer.capacity.items()))
                self._used.subtract(dict(offer.free.items()))

    def copy(self) -> "Load":
        """Return another that can be added to without this one."""
        found = Load(())
        found._total, found._used = self._total, self._used.copy()
        return found

    def add(self, needs: Resources) -> None:
        """Count a task that is about to start."""
        self._used.update(dict(needs.items()))

    def scarcest(self, needs: Resources) -> Share:
        """Return the resource of which most is in use, of those that `needs` has some of."""
        shares = [
            Share(kind, max(0, self._used[kind]), self._total[kind])
            for kind, amount in needs.items()
            if amount > 0 and self._total[kind] > 0
        ]
        return max(shares, key=lambda share: share.percent, default=NONE_OF_IT)
