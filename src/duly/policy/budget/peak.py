"""Decides when it is peak time, and which tasks are postponed then.

Peak time begins when `scheduling.peak_percent` of a kind of resource is in use on all nodes
together, and ends when no more than `scheduling.off_peak_percent` is: with a single threshold,
every task that ends would start a postponed one. Each kind has a peak of its own, so that a
shortage of GPUs does not delay a task that needs none.

At peak, tasks of the `off_peak` queue wait until their slack runs out, and tasks with more slack
than `scheduling.postpone_slack` until they have no more than that. Then they compete with all
others.
"""

from collections.abc import Iterable
from copy import copy
from datetime import datetime

import msgspec

from duly.config import SchedulingSettings
from duly.model.node import Offer
from duly.model.queues.peak import PeakState
from duly.model.resources import KINDS, Resources


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

    def exceeds(self, percent: int) -> bool:
        """Return True if more than `percent` is in use."""
        return 100 * self.used > percent * self.total


NOTHING_USED = ResourceShare("cpu_milli", 0, 1)
"""The share if no node has any of the needed kinds."""


class Load:
    """The resources in use on all nodes, including those that a round has just placed."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        """Count everything not free as used; workers and nodes that take no work are ignored."""
        self._total: dict[str, int] = {}
        self._used: dict[str, int] = {}
        for offer in offers:
            if offer.takes_work and offer.worker is None:
                self._count(offer.capacity, offer.free)

    def _count(self, capacity: Resources, free: Resources) -> None:
        total, used = self._total, self._used
        for kind in KINDS:
            if amount := getattr(capacity, kind):
                total[kind] = total.get(kind, 0) + amount
                used[kind] = used.get(kind, 0) + amount - getattr(free, kind)
        for kind, amount in capacity.extra.items():
            if amount:
                total[kind] = total.get(kind, 0) + amount
                used[kind] = used.get(kind, 0) + amount - free.extra.get(kind, 0)

    def copy(self) -> "Load":
        """Return a copy that can be added to independently."""
        duplicate = copy(self)
        duplicate._used = self._used.copy()
        return duplicate

    def add(self, needs: Resources, times: int = 1) -> None:
        """Count tasks that are about to start."""
        for kind, amount in needs.items():
            if kind in self._used:
                self._used[kind] += times * amount

    @property
    def shares(self) -> Iterable[ResourceShare]:
        """Return the share in use of every kind of resource that any node has."""
        return (
            ResourceShare(kind, max(0, self._used[kind]), total)
            for kind, total in self._total.items()
        )

    def scarcest(self, needs: Resources) -> ResourceShare:
        """Return the share of the most used kind of resource among those in `needs`."""
        needed = {kind for kind, amount in needs.items() if amount > 0}
        shares = (share for share in self.shares if share.kind in needed)
        return max(shares, key=lambda share: share.percent, default=NOTHING_USED)


def next_peak(
    state: PeakState, load: Load, scheduling: SchedulingSettings, now: datetime
) -> PeakState:
    """Return the state that follows `state` under a load."""
    since = {
        share.kind: state.since.get(share.kind, now)
        for share in load.shares
        if share.reaches(scheduling.peak_percent)
        or (share.kind in state.since and share.exceeds(scheduling.off_peak_percent))
    }
    return state if since == state.since else PeakState(since)


class Postponement:
    """Decides which tasks of a round wait for the end of peak time.

    The load rises with each task that is added: a round fills the fleet with postponable tasks up
    to the threshold, and no further.
    """

    def __init__(
        self, state: PeakState, load: Load, scheduling: SchedulingSettings, now: datetime
    ) -> None:
        self.state = state
        self._load = load
        self._percent = scheduling.peak_percent
        self._off_peak_until = now + scheduling.urgent_slack
        self._others_until = now + scheduling.postpone_slack
        self._never_until = min(self._off_peak_until, self._others_until)
        self._added: list[Resources] = []
        """Tasks that the load does not include yet."""

    def copy(self) -> "Postponement":
        """Return a copy that can be added to independently."""
        duplicate = copy(self)
        duplicate._load, duplicate._added = self._load.copy(), self._added.copy()
        return duplicate

    def add(self, needs: Resources) -> None:
        """Count a task that is about to start."""
        # Most windows have no task that could be postponed, and never need the sum.
        self._added.append(needs)

    def may_apply(self, start_by: datetime) -> bool:
        """Return False if a task has too little slack to be postponed, whatever its queue."""
        return start_by > self._never_until

    def applies(self, needs: Resources, start_by: datetime, *, is_off_peak: bool) -> bool:
        """Return True if a task must not start now."""
        if start_by <= (self._off_peak_until if is_off_peak else self._others_until):
            return False
        if self.state.since_for(needs) is not None:
            return True
        for added in self._added:
            self._load.add(added)
        self._added.clear()
        return self._load.scarcest(needs).reaches(self._percent)
