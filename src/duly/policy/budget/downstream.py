"""Decides how many tasks may start that call a downstream, and adapts its limits to throttling.

A rate is kept by a token bucket, a concurrency by counting running attempts. Both scale with the
factor of the downstream, by additive increase and multiplicative decrease (AIMD): throttling
halves it, calls that end without throttling raise it slowly.

Limits that tenants share are divided by weight between those whose tasks could start. In each
round every contender is granted a number of tasks: slots go to whoever holds the fewest, tokens to
whoever was served least so far, both per weight. What a contender leaves is granted to the others.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heapreplace
from math import inf

import msgspec

from duly.model.queues.downstream import (
    MAX_RETRY_AFTER_SECONDS,
    MAX_SHARED_RETRY_AFTER_SECONDS,
    Downstream,
)

MIN_HALVING_INTERVAL = timedelta(seconds=1)
"""Reports of one burst arrive within this time, and halve the limits once."""
MIN_FACTOR = 1 / 64
SECONDS_TO_RAISE = 60.0
"""How long it takes to raise the factor from 0 to 1 while calls succeed."""
MIN_RAISE_INTERVAL = 1.0
MAX_RAISE_INTERVAL = 10.0
"""In seconds. The factor rises by time, but no single success makes up for a longer pause."""
BURST_SECONDS = 0.2
"""A bucket holds what comes in this time, and at least one token."""
MIN_WAIT_SECONDS = 0.05
"""Tokens are waited for no shorter than this: a quarter of a burst comes at once."""
UNBOUNDED = 2**31
ROUNDING = 1e-9


def throttle(downstream: Downstream, now: datetime, retry_after: float) -> Downstream:
    """Return the downstream after a report that it throttles calls.

    The limits are halved once per burst: not again within a second, nor before calls may be tried
    again. Reports about a downstream that is not adaptive change nothing.
    """
    if not downstream.adaptive:
        return downstream
    is_shared = downstream.tenant_id is None
    longest = MAX_SHARED_RETRY_AFTER_SECONDS if is_shared else MAX_RETRY_AFTER_SECONDS
    pause = min(max(retry_after, 0.0), longest)
    retry_at = max(downstream.retry_at or now, now + timedelta(seconds=pause))
    halved_at = downstream.throttled_at
    if halved_at is not None and now < max(
        halved_at + MIN_HALVING_INTERVAL, downstream.retry_at or halved_at
    ):
        return msgspec.structs.replace(downstream, retry_at=retry_at)
    return msgspec.structs.replace(
        downstream,
        factor=max(downstream.factor / 2, MIN_FACTOR),
        throttled_at=now,
        retry_at=retry_at,
    )


def raise_factor(downstream: Downstream, seconds: float) -> Downstream:
    """Return the downstream after calls have succeeded, `seconds` after the last change."""
    if downstream.factor >= 1 or seconds < MIN_RAISE_INTERVAL:
        return downstream
    step = min(seconds, MAX_RAISE_INTERVAL) / SECONDS_TO_RAISE
    return msgspec.structs.replace(downstream, factor=min(1.0, downstream.factor + step))


class TokenBucket:
    """The starts that a rate allows. It begins empty, so that a new leader never bursts."""

    def __init__(self, now: float) -> None:
        self._tokens = 0.0
        self._filled_at = now

    def fill(self, rate: float, now: float) -> None:
        """Add what has come at `rate` per second since the last time."""
        elapsed = max(0.0, now - self._filled_at)
        self._tokens = min(max(1.0, rate * BURST_SECONDS), self._tokens + rate * elapsed)
        self._filled_at = now

    @property
    def whole(self) -> int:
        """Return how many tasks may start."""
        return max(0, int(self._tokens + ROUNDING))

    def take(self, count: int) -> None:
        """Take tokens for tasks that start, or return those of tasks that did not."""
        self._tokens -= count

    def seconds_until_next(self, rate: float) -> float:
        """Return how long to wait for a token that is worth a round; 0 if there is one."""
        if self.whole:
            return 0.0
        return max((1 - self._tokens) / rate, MIN_WAIT_SECONDS)


class KeyRoom:
    """How many tasks may start under the limits of one downstream, charged as the window fills."""

    __slots__ = ("_grants", "downstream", "left")

    def __init__(
        self, downstream: Downstream, left: int, grants: Mapping[int, int] | None = None
    ) -> None:
        """Allow `left` tasks; of limits that tenants share, each no more than its grant."""
        self.downstream = downstream
        self.left = left
        self._grants = None if grants is None else dict(grants)

    def copy(self) -> "KeyRoom":
        """Return a copy that can be charged independently."""
        return KeyRoom(self.downstream, self.left, self._grants)

    def of(self, tenant: int) -> int:
        """Return how many tasks a tenant may start."""
        if self._grants is None:
            return self.left
        return min(self.left, self._grants.get(tenant, 0))

    def charge(self, tenant: int) -> None:
        """Count a task of a tenant as started."""
        self.left -= 1
        if self._grants is not None:
            self._grants[tenant] -= 1

    @property
    def idle(self) -> set[int]:
        """Return the tenants that have not taken all they were granted."""
        return {tenant for tenant, left in (self._grants or {}).items() if left > 0}


class DownstreamBudget:
    """What tasks may still start in a round, by the downstreams that they use."""

    def __init__(self, rooms: Mapping[tuple[int | None, str], KeyRoom]) -> None:
        """Take the room under each limit by tenant, None for everyone's, and key."""
        self.rooms = rooms

    def copy(self) -> "DownstreamBudget":
        """Return a copy that can be charged independently."""
        return DownstreamBudget({owner: room.copy() for owner, room in self.rooms.items()})

    def applying(self, tenant: int, uses: Iterable[str]) -> Iterable[KeyRoom]:
        """Return the room under every limit that applies to a task."""
        for key in uses:
            for owner in (tenant, None):
                if (room := self.rooms.get((owner, key))) is not None:
                    yield room

    def room(self, tenant: int, uses: Iterable[str]) -> int:
        """Return how many tasks of a tenant that use these keys may start."""
        return min((room.of(tenant) for room in self.applying(tenant, uses)), default=UNBOUNDED)

    def blocking(self, tenant: int, uses: Iterable[str]) -> Downstream | None:
        """Return the first downstream that keeps a task from starting."""
        for room in self.applying(tenant, uses):
            if not room.of(tenant):
                return room.downstream
        return None

    def charge(self, tenant: int, uses: Iterable[str]) -> None:
        """Count a task as started; the caller has checked that there is room."""
        for room in self.applying(tenant, uses):
            room.charge(tenant)


class Served:
    """How much each contender for shared limits was served so far, per weight.

    A contender that was away comes back level with whoever was served least: what it did not ask
    for is not saved up.
    """

    def __init__(self) -> None:
        self._served: dict[int, float] = {}

    def begin(self, contenders: Collection[int]) -> Mapping[int, float]:
        """Return how much each contender was served; those that left are forgotten."""
        known = [self._served[tenant] for tenant in contenders if tenant in self._served]
        least = min(known, default=0.0)
        self._served = {tenant: self._served.get(tenant, least) for tenant in contenders}
        return self._served

    def serve(self, tenant: int, count: int, weight: int) -> None:
        """Count tasks that a tenant has started."""
        if tenant in self._served:
            self._served[tenant] += count / weight


def divide(
    count: int,
    weights: Mapping[int, int],
    held: Mapping[int, int] | None,
    served: Mapping[int, float],
) -> dict[int, int]:
    """Divide `count` starts between the tenants in `weights`, and return the grant of each.

    With `held`, slots are divided: each goes to the tenant that holds the fewest per weight. Ties,
    and tokens, go to the tenant that was served least.
    """
    grants = dict.fromkeys(weights, 0)
    if not grants:
        return grants
    heap = [
        (held.get(tenant, 0) / weight if held is not None else 0.0, served[tenant], tenant)
        for tenant, weight in weights.items()
    ]
    heapify(heap)
    for _ in range(count):
        slots, turns, tenant = heap[0]
        step = 1 / weights[tenant]
        heapreplace(heap, (slots + step if held is not None else 0.0, turns + step, tenant))
        grants[tenant] += 1
    return grants


def slots_left(downstream: Downstream, running: int) -> float:
    """Return how many more tasks may run at once; infinite without a limit."""
    most = downstream.current_concurrency
    return inf if most is None else max(0, most - running)


def is_closed(downstream: Downstream, now: datetime) -> bool:
    """Return True until calls may be tried again."""
    return downstream.retry_at is not None and now < downstream.retry_at
