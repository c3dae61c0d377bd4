"""Watches the load of the fleet for the scheduler: whether it is peak time, and what is kept then.

The state is in the leader's memory. Changes are also stored in the row of its term, at most one a
second, so that every server can report them, and a new leader continues from there.

With a thousand nodes, adding up their load takes milliseconds, so it is not done in every round. In
between, what was leased is added, so that the load is never taken for less than it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from duly import clock
from duly.config import SchedulingSettings
from duly.model.node import Offer
from duly.model.queues.peak import NO_PEAK
from duly.model.resources import Resources
from duly.policy.budget.headroom import NO_HEADROOM, SLOT, keep, slots_to_keep
from duly.policy.budget.peak import Load, Postponement, next_peak
from duly.server.duty_cycle import DutyCycle
from duly.store.database import Connection
from duly.store.fleet import servers
from duly.store.fleet.servers import Term

MAX_COUNT_INTERVAL = timedelta(milliseconds=250)
COUNT_DUTY_DIVISOR = 50
"""Counting takes at most 1/50 of the time."""
MIN_STORE_INTERVAL = timedelta(seconds=1)
"""A fleet of few slots may change between peak and off-peak with every task."""


class PeakMonitor:
    """The peak state of the leader, and the headroom that nodes keep."""

    def __init__(self, scheduling: SchedulingSettings) -> None:
        self._scheduling = scheduling
        self._count_cycle = DutyCycle(timedelta(0), MAX_COUNT_INTERVAL, COUNT_DUTY_DIVISOR)
        self._load = Load(())
        self.state = NO_PEAK
        self.headroom: Mapping[int, Resources] = NO_HEADROOM
        """By incarnation."""
        self._term: Term | None = None
        self._stored = NO_PEAK
        self._stored_at = float("-inf")

    async def sync(self, conn: Connection, term: Term) -> None:
        """Read the stored state if `term` is a new one, and store it if it has changed."""
        if term != self._term:
            self.state = self._stored = await servers.read_peak(conn)
            self._term = term
            self._count_cycle.make_due()
        age = clock.monotonic() - self._stored_at
        if self.state != self._stored and age >= MIN_STORE_INTERVAL.total_seconds():
            self._stored_at = clock.monotonic()
            await servers.store_peak(conn, term, self.state)
            self._stored = self.state

    def observe(self, offers: Sequence[Offer], now: datetime) -> None:
        """Take note of what the nodes have free."""
        if not self._count_cycle.is_due:
            return
        with self._count_cycle.step():
            self._load = Load(offers)
            self.state = next_peak(self.state, self._load, self._scheduling, now)
            self.headroom = NO_HEADROOM
            if self.state.since_for(SLOT) is not None:
                slots = slots_to_keep(offers, self._scheduling.urgent_headroom)
                self.headroom = keep(offers, slots)

    def add_leased(self, leased: Iterable[tuple[Resources, int]], now: datetime) -> None:
        """Count tasks that were leased: what they need, and how many of them need it."""
        for needs, times in leased:
            self._load.add(needs, times)
        self.state = next_peak(self.state, self._load, self._scheduling, now)

    def postponement(self, now: datetime) -> Postponement:
        """Return what decides which tasks of a round are postponed."""
        return Postponement(self.state, self._load, self._scheduling, now)
