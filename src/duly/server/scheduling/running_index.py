"""Counts the attempts that run on each node, or keeps an index of them while counting is slow.

An ended attempt stays in the database's index of running attempts until no snapshot is old enough
to see it, and a count walks over all of them. When counts are slow several times in a row, the
leader goes by an index in memory, and brings that up to date in every round. Only the leader
leases, and its fencing tokens only rise: an attempt that began since the last round has a higher
token than all seen before, and one that has ended is found by looking up each known attempt by id.

A lease whose response was lost may take effect late, with an earlier token. As long as that is
possible after an error, and otherwise about once a second, all attempts are read.

Attempts on an incarnation that has ended, or takes no more work, count for their tenant until they
have been taken back: such incarnations are read, too, until nothing runs there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from duly import clock
from duly.model.node import Worker
from duly.server.duty_cycle import DutyCycle
from duly.store.attempts import leases
from duly.store.attempts.leases import RunningAttempt
from duly.store.database import Connection
from duly.store.fleet import fleet_snapshot
from duly.store.fleet.fleet_snapshot import FleetSnapshot, InUse
from duly.store.fleet.servers import Term

NO_TOKEN = 0
"""Below every token."""
FULL_READ_INTERVAL = timedelta(seconds=1)
"""How often all attempts are read while the index is used."""
QUICK_COUNT = timedelta(milliseconds=5)
QUICK_COUNT_SECONDS_PER_ATTEMPT = 2e-6
"""A count is quick if it takes no longer than `QUICK_COUNT`, and this for each attempt."""
SLOW_COUNTS_BEFORE_CACHING = 3
"""Slow counts in a row that show a bloated index; a single one may have lacked the processor. To
keep the index in memory takes longer than a quick count."""


class RunningIndex:
    """The running attempts by task; valid for one term."""

    def __init__(
        self,
        statement_timeout: timedelta,
        quick_count: timedelta = QUICK_COUNT,
        max_slow_counts: int = SLOW_COUNTS_BEFORE_CACHING,
    ) -> None:
        """Begin empty; a statement may take effect up to `statement_timeout` after it failed."""
        self._statement_timeout = statement_timeout.total_seconds()
        self._quick_count = quick_count.total_seconds()
        self._max_slow_counts = max_slow_counts
        self._slow_counts = 0
        """How many counts in a row were slow."""
        self._term: Term | None = None
        self._attempts: dict[int, tuple[RunningAttempt, float]] = {}
        """Each attempt by its task, and when it must have ended."""
        self._incarnations: set[int] = set()
        self._workers: Mapping[int, Worker] = {}
        """Those of the last round: what they know never changes."""
        self._highest_token = NO_TOKEN
        self._full_read_cycle = DutyCycle(FULL_READ_INTERVAL)
        self._usable_from = float("-inf")

    @contextmanager
    def round(self, term: Term) -> Iterator[None]:
        """Run a round of `term`; after one that failed, the index is not used for a while."""
        if term != self._term:
            self._term = term
            self._slow_counts = 0
        try:
            yield
        except BaseException:
            self._usable_from = clock.monotonic() + self._statement_timeout
            raise

    async def read(self, conn: Connection, tenants: Collection[int] | None = ()) -> FleetSnapshot:
        """Return a snapshot of the fleet; attempts of `tenants`, or of all, are listed apart."""
        snapshot = await self._read(conn, tenants)
        self._workers = snapshot.workers
        return snapshot

    async def _read(self, conn: Connection, tenants: Collection[int] | None) -> FleetSnapshot:
        is_slow = self._slow_counts >= self._max_slow_counts
        if is_slow and clock.monotonic() >= self._usable_from:
            snapshot = await fleet_snapshot.read_snapshot(
                conn, running=False, workers=self._workers
            )
            await self._update(conn, {offer.incarnation_id for offer in snapshot.offers})
            listed = None if tenants is None else frozenset(tenants)
            return msgspec.structs.replace(snapshot, in_use=self._in_use(listed))
        began_at = clock.monotonic()
        snapshot = await fleet_snapshot.read_snapshot(conn, tenants=tenants, workers=self._workers)
        self._judge_count(began_at, sum(in_use.times for in_use in snapshot.in_use))
        self._incarnations = {offer.incarnation_id for offer in snapshot.offers}
        self._incarnations.update(in_use.incarnation_id for in_use in snapshot.in_use)
        self._full_read_cycle.make_due()
        return snapshot

    def _judge_count(self, began_at: float, attempts: int) -> None:
        """Record whether a count of all attempts that began at `began_at` was slow."""
        took = clock.monotonic() - began_at
        is_slow = took > self._quick_count + QUICK_COUNT_SECONDS_PER_ATTEMPT * attempts
        self._slow_counts = self._slow_counts + 1 if is_slow else 0

    async def _update(self, conn: Connection, offering: set[int]) -> None:
        """Add the attempts that have begun since the last round, and remove those that ended."""
        incarnations = list(offering | self._incarnations)
        if self._full_read_cycle.is_due or not self._incarnations.issuperset(offering):
            began_at = clock.monotonic()
            with self._full_read_cycle.step():
                begun, _ = await leases.read_running_changes(conn, incarnations, NO_TOKEN, {})
            self._judge_count(began_at, len(begun))
            self._attempts = {}
            self._highest_token = NO_TOKEN if begun else self._highest_token
        else:
            tokens = {task: attempt.token for task, (attempt, _) in self._attempts.items()}
            begun, gone = await leases.read_running_changes(
                conn, incarnations, self._highest_token, tokens
            )
            for task in gone:
                del self._attempts[task]
        now = clock.monotonic()
        for attempt in begun:
            self._attempts[attempt.id] = attempt, now + attempt.remaining.total_seconds()
            self._highest_token = max(self._highest_token, attempt.token)
        self._incarnations = offering | {
            attempt.incarnation_id for attempt, _ in self._attempts.values()
        }

    def _in_use(self, tenants: Collection[int] | None) -> list[InUse]:
        now = clock.monotonic()
        ends: defaultdict[tuple[int, int, int | None], list[float]] = defaultdict(list)
        for attempt, ends_at in self._attempts.values():
            is_listed = tenants is None or attempt.tenant_id in tenants
            tenant = attempt.tenant_id if is_listed else None
            ends[attempt.incarnation_id, attempt.shape_id, tenant].append(ends_at)
        return [
            InUse(incarnation, shape, len(ends_at), min(ends_at) - now, tenant)
            for (incarnation, shape, tenant), ends_at in ends.items()
        ]
