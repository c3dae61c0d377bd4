"""Peak time: when most of the nodes' resources are in use."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from duly.model.resources import KINDS, Resources


class PeakState(msgspec.Struct, frozen=True):
    """The kinds of resources that are at peak, each with the time since when."""

    since: Mapping[str, datetime] = {}

    @property
    def is_peak(self) -> bool:
        """Return True if any kind of resource is at peak."""
        return bool(self.since)

    def since_for(self, needs: Resources) -> datetime | None:
        """Return since when it is peak time for a task; None if it is not."""
        earliest = None
        for kind, since in self.since.items():
            needed = getattr(needs, kind) if kind in KINDS else needs.extra.get(kind, 0)
            if needed > 0 and (earliest is None or since < earliest):
                earliest = since
        return earliest


NO_PEAK = PeakState()
