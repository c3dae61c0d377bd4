"""Keeps the limits of downstreams for the leader, and makes the part of the budget they allow.

Definitions are cached until a snapshot of the fleet reports that they have changed. Token buckets
and turns are in memory only: a new leader begins with empty buckets. Successes are not counted by
anyone else: an attempt that no longer runs, without throttling reported, raises a lowered limit.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from math import inf

from duly import clock
from duly.model.queues.downstream import Downstream
from duly.model.shape import Shape
from duly.policy.budget import downstream as policy
from duly.policy.budget.downstream import DownstreamBudget, KeyRoom, Served, TokenBucket
from duly.policy.budget.limits import Budget
from duly.policy.fairness.shares import DEFAULT_WEIGHT
from duly.policy.fairness.turns import SubqueueKey
from duly.server.scheduling.slot_counter import FITS_LATER, FITS_NEVER
from duly.server.scheduling.subqueues.prioritizer import Prioritizer
from duly.store.accounts import downstreams
from duly.store.database import Connection
from duly.store.fleet.fleet_snapshot import DownstreamRevision, FleetSnapshot, InUse
from duly.store.tasks.subqueues import Head

Owner = tuple[int | None, str]
"""The tenant, None for everyone's limits, and the key."""


class DownstreamLimits:
    """The limits of the keys that tasks use, and what the leader remembers about each."""

    def __init__(self, max_grants: int, prioritizer: Prioritizer) -> None:
        """Divide at most `max_grants` starts in a round: no window is larger."""
        self._max_grants = max_grants
        self._prioritizer = prioritizer
        self.using: set[int] = set()
        """The known shapes whose tasks use downstreams."""
        self.reset()

    def reset(self) -> None:
        """Begin with empty buckets: another server may have led."""
        self._revision = DownstreamRevision()
        self._keys: set[str] = set()
        self._limits: dict[Owner, Downstream] = {}
        self._buckets: dict[int, TokenBucket] = {}
        self._served: dict[int, Served] = {}
        self._weights: Mapping[int, int] = {}
        self._contenders: dict[Owner, set[int]] = {}
        self._passed_over: defaultdict[Owner, set[int]] = defaultdict(set)
        """Tenants that left their grants unused in the rounds just before this one."""
        self._is_follow_up = False
        self._expected: dict[int, int] = {}
        """How many tasks of a lowered limit should run, unless some have ended."""
        self._raised_at: dict[int, float] = {}
        self.wait: float | None = None
        """Seconds until another task may start that waits for tokens or a pause."""

    async def limit(
        self,
        conn: Connection,
        snapshot: FleetSnapshot,
        shapes: Mapping[int, Shape],
        slots: Mapping[int, int],
        budget: Budget,
        weights: Mapping[int, int],
    ) -> None:
        """Limit the budget to what the downstreams allow that waiting tasks use.

        `slots` has the shapes of waiting tasks, and how many of each fit on the nodes now.
        """
        using = self.using & slots.keys()
        if not using:
            return
        keys = {key for shape in using for key in shapes[shape].uses}
        await self._load(conn, snapshot.downstreams, keys)
        self._weights = weights
        if not self._is_follow_up:
            self._passed_over.clear()
        running = count_running(snapshot.in_use, shapes)
        await self._raise(conn, running, snapshot.now)
        rooms = {
            owner: KeyRoom(limit, self._left(limit, running[owner].total(), snapshot.now))
            for owner, limit in self._limits.items()
        }
        waiting = self._waiting(slots)
        self._contenders = self._find_contenders(shapes, waiting, budget, DownstreamBudget(rooms))
        for owner, contenders in self._contenders.items():
            rooms[owner] = self._divide(rooms[owner], contenders, running[owner])
        budget.downstreams = DownstreamBudget(rooms)

    def _waiting(self, slots: Mapping[int, int]) -> Sequence[SubqueueKey]:
        """Return the subqueues whose tasks use downstreams and fit on a node now."""
        fitting = {shape for shape in self.using if slots.get(shape, FITS_NEVER) > FITS_LATER}
        return self._prioritizer.keys_of_shapes(fitting)

    async def _load(self, conn: Connection, revision: DownstreamRevision, keys: set[str]) -> None:
        """Read the limits of `keys` as far as they have changed."""
        if revision == self._revision and keys <= self._keys:
            return
        is_known = revision.defined == self._revision.defined and keys <= self._keys
        self._keys |= keys
        changed, read = await downstreams.read_for_leader(
            conn, self._keys, self._revision.adapted if is_known else -1
        )
        if not is_known or read.defined != self._revision.defined:
            if is_known:
                changed, read = await downstreams.read_for_leader(conn, self._keys)
            self._limits = {}
        self._limits.update({(limit.tenant_id, limit.key): limit for limit in changed})
        self._revision = read

    def _left(self, limit: Downstream, running: int, now: datetime) -> int:
        if policy.is_closed(limit, now):
            return 0
        return int(min(policy.slots_left(limit, running), self._tokens(limit), policy.UNBOUNDED))

    def _tokens(self, limit: Downstream) -> float:
        rate, now = limit.current_rate, clock.monotonic()
        if rate is None:
            return inf
        bucket = self._buckets.setdefault(limit.id, TokenBucket(now))
        bucket.fill(rate, now)
        return bucket.whole

    def _find_contenders(
        self,
        shapes: Mapping[int, Shape],
        waiting: Iterable[SubqueueKey],
        budget: Budget,
        rooms: DownstreamBudget,
    ) -> dict[Owner, set[int]]:
        """Return the tenants that could start a task under each shared limit."""
        contenders: dict[Owner, set[int]] = {
            (None, key): set() for owner, key in self._limits if owner is None
        }
        if not contenders:
            return contenders
        for tenant, shape_id in waiting:
            uses = shapes[shape_id].uses
            if rooms.room(tenant, uses) and budget.room(tenant, shape_id):
                for key in uses:
                    if (None, key) in contenders:
                        contenders[None, key].add(tenant)
        return contenders

    def _divide(self, room: KeyRoom, contenders: set[int], running: Counter[int]) -> KeyRoom:
        limit = room.downstream
        owner: Owner = (None, limit.key)
        served = self._served.setdefault(limit.id, Served()).begin(contenders)
        weights = {
            tenant: self._weights.get(tenant, DEFAULT_WEIGHT)
            for tenant in contenders - self._passed_over[owner]
        }
        # The scarcer of the two is divided.
        slots = policy.slots_left(limit, running.total())
        held = running if slots <= self._tokens(limit) else None
        grants = policy.divide(min(room.left, self._max_grants), weights, held, served)
        return KeyRoom(limit, room.left, grants)

    async def _raise(
        self, conn: Connection, running: Mapping[Owner, Counter[int]], now: datetime
    ) -> None:
        """Raise lowered limits under which attempts have ended since the last round."""
        raised = []
        expected, self._expected = self._expected, {}
        for owner, limit in self._limits.items():
            if limit.factor >= 1 or limit.throttled_at is None:
                continue
            count = running[owner].total()
            changed_at = max(limit.throttled_at, limit.retry_at or limit.throttled_at).timestamp()
            changed_at = max(changed_at, self._raised_at.get(limit.id, changed_at))
            self._expected[limit.id] = count
            if expected.get(limit.id, 0) <= count:
                continue
            higher = policy.raise_factor(limit, now.timestamp() - changed_at)
            if higher is limit:
                # It counts once the interval is over.
                self._expected[limit.id] = expected[limit.id]
                continue
            self._limits[owner] = higher
            self._raised_at[limit.id] = now.timestamp()
            raised.append(higher)
        if raised:
            await downstreams.store_raised(conn, raised)

    def calling(self, window: Iterable[Head], placed: Set[int]) -> dict[int, SubqueueKey]:
        """Return the subqueues of the placed tasks that use downstreams, by task."""
        if not self.using:
            return {}
        return {
            head.id: (head.tenant_id, head.shape_id)
            for head in window
            if head.shape_id in self.using and head.id in placed
        }

    def spend(self, started: Iterable[SubqueueKey], shapes: Mapping[int, Shape]) -> None:
        """Take the tokens of tasks that are about to be leased."""
        self._count(started, shapes, 1)

    def refund(self, failed: Iterable[SubqueueKey], shapes: Mapping[int, Shape]) -> None:
        """Return the tokens of tasks that could not be leased."""
        self._count(failed, shapes, -1)

    def _count(self, keys: Iterable[SubqueueKey], shapes: Mapping[int, Shape], sign: int) -> None:
        for (tenant, shape_id), times in Counter(keys).items():
            for key in shapes[shape_id].uses:
                for owner in ((tenant, key), (None, key)):
                    if (limit := self._limits.get(owner)) is None:
                        continue
                    if (bucket := self._buckets.get(limit.id)) is not None:
                        bucket.take(sign * times)
                    if (served := self._served.get(limit.id)) is not None:
                        weight = self._weights.get(tenant, DEFAULT_WEIGHT)
                        served.serve(tenant, sign * times, weight)
                    if limit.id in self._expected:
                        self._expected[limit.id] += sign * times

    def settle(
        self,
        snapshot: FleetSnapshot,
        shapes: Mapping[int, Shape],
        slots: Mapping[int, int],
        budget: Budget,
        leased: int,
    ) -> bool:
        """Set `wait` after a round; True if another may start what contenders left to others."""
        self._is_follow_up = False
        if budget.downstreams is None:
            return False
        self.wait = self._seconds_until_next(shapes, slots, snapshot.now)
        has_capacity = leased < sum(count for count in slots.values() if count > FITS_LATER)
        for owner, contenders in self._contenders.items():
            room, passed_over = budget.downstreams.rooms[owner], self._passed_over[owner]
            idle = room.idle - passed_over
            if has_capacity and room.left and idle and contenders - passed_over - idle:
                passed_over |= idle
                self._is_follow_up = True
        return self._is_follow_up

    def _seconds_until_next(
        self, shapes: Mapping[int, Shape], slots: Mapping[int, int], now: datetime
    ) -> float | None:
        """Return when time alone allows another task to start; None if no task waits for that."""
        owners = {
            owner
            for tenant, shape_id in self._waiting(slots)
            for key in shapes[shape_id].uses
            for owner in ((tenant, key), (None, key))
        }
        waits = [
            seconds
            for owner in owners & self._limits.keys()
            if (seconds := self._seconds_closed(self._limits[owner], now)) > 0
        ]
        return min(waits, default=None)

    def _seconds_closed(self, limit: Downstream, now: datetime) -> float:
        if limit.retry_at is not None and policy.is_closed(limit, now):
            return (limit.retry_at - now).total_seconds()
        bucket, rate = self._buckets.get(limit.id), limit.current_rate
        return 0.0 if bucket is None or rate is None else bucket.seconds_until_next(rate)


def count_running(
    in_use: Iterable[InUse], shapes: Mapping[int, Shape]
) -> defaultdict[Owner, Counter[int]]:
    """Return the running attempts under each limit by tenant; 0 stands for tenants not listed."""
    running: defaultdict[Owner, Counter[int]] = defaultdict(Counter)
    for use in in_use:
        shape = shapes.get(use.shape_id)
        if shape is None:
            continue
        for key in shape.uses:
            tenant = use.tenant_id or 0
            running[None, key][tenant] += use.times
            running[tenant, key][tenant] += use.times
    return running
