"""Builds the shares of a scheduling round from what runs, and remembers recent use.

Recent use is kept in the leader's memory only. A new leader begins without it, and for a while
divides the fleet by what tenants hold alone.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta

from duly.model.node import Offer
from duly.model.shape import Shape
from duly.policy.fairness.recent_use import RecentUse
from duly.policy.fairness.shares import (
    SHARED_KINDS,
    Competitors,
    Pool,
    PoolKey,
    PoolShares,
    competing_for,
    contested_kinds,
    has_special_kinds,
    pool_key,
)
from duly.policy.fairness.turns import Shares, SubqueueKey, user_of
from duly.server.duty_cycle import DutyCycle
from duly.store.fleet.fleet_snapshot import FleetSnapshot

FORGET_INTERVAL_SECONDS = 60.0
MAX_COUNT_INTERVAL = timedelta(seconds=1)
COUNT_DUTY_DIVISOR = 50
"""Counting who competes takes at most 1/50 of the time."""


class FairShares:
    """The recent use of every pool."""

    def __init__(self) -> None:
        self._recent: dict[PoolKey, RecentUse] = {}
        self._recent_of_users: dict[tuple[int, PoolKey], RecentUse] = {}
        """By tenant and pool."""
        self._forgot_at = 0.0
        self._count_cycle = DutyCycle(timedelta(0), MAX_COUNT_INTERVAL, COUNT_DUTY_DIVISOR)
        self._counted: Mapping[PoolKey, Competitors] = {}
        self._special: set[int] = set()
        """The shapes that need other kinds of resources than those that always count."""
        self._examined = 0
        """How many shapes were examined for that; none is ever dropped."""
        self.shared_by_users: set[int] = set()
        """The shapes of tenants whose users divide their fair share."""

    def of_round(
        self,
        snapshot: FleetSnapshot,
        offers: Sequence[Offer],
        shapes: Mapping[int, Shape],
        waiting: Mapping[int, Set[int]],
        placeable: Set[int],
        weights: Mapping[int, int],
        is_postponed: Callable[[SubqueueKey], bool] | None = None,
    ) -> Shares:
        """Return the shares of the pools in which the `placeable` shapes may run.

        `waiting` has the shapes of every tenant's waiting tasks. Those that are postponed at peak
        time do not compete.
        """
        now = snapshot.now.timestamp()
        self._forget(now)
        self.examine(shapes)
        kinds = self._kinds(snapshot, shapes, waiting)
        keys = {shape: pool_key(shapes[shape]) for shape in placeable}
        pools = {key: Pool(key, offers, kinds) for key in set(keys.values())}
        competitors = self._competitors(waiting, keys, pools, weights, is_postponed)
        shares = {
            key: self._pool_shares(key, pool, snapshot, shapes, weights, competitors[key], now)
            for key, pool in pools.items()
        }
        by_shape = {shape: shares[key] for shape, key in keys.items()}
        users = self._user_shares(shares, keys, snapshot, shapes, waiting, now, is_postponed)
        return Shares(by_shape, shapes, now, users)

    def _user_shares(
        self,
        pools: Mapping[PoolKey, PoolShares],
        keys: Mapping[int, PoolKey],
        snapshot: FleetSnapshot,
        shapes: Mapping[int, Shape],
        waiting: Mapping[int, Set[int]],
        now: float,
        is_postponed: Callable[[SubqueueKey], bool] | None,
    ) -> dict[tuple[int, PoolShares], PoolShares]:
        """Return how the users of tenants that asked for it divide their tenant's fair share."""
        if not self.shared_by_users:
            return {}
        users: dict[tuple[int, PoolKey], set[int]] = {}
        for tenant, theirs in waiting.items():
            if not theirs.isdisjoint(self.shared_by_users):
                for shape in theirs & keys.keys():
                    if is_postponed is None or not is_postponed((tenant, shape)):
                        users.setdefault((tenant, keys[shape]), set()).add(user_of(shapes[shape]))
        shares = {}
        for (tenant, key), competing in users.items():
            pool = pools[key]
            recent = self._recent_of_users.setdefault((tenant, key), RecentUse())
            divided = PoolShares(
                pool.pool, {}, Competitors(competing, {}), recent, now, pool.fair_share(tenant)
            )
            for use in snapshot.in_use:
                if use.tenant_id == tenant and use.incarnation_id in pool.pool.incarnations:
                    held = shapes[use.shape_id]
                    divided.hold_shape(user_of(held), use.shape_id, held, use.times)
            shares[tenant, pool] = divided
        return shares

    def _pool_shares(
        self,
        key: PoolKey,
        pool: Pool,
        snapshot: FleetSnapshot,
        shapes: Mapping[int, Shape],
        weights: Mapping[int, int],
        competing: Competitors,
        now: float,
    ) -> PoolShares:
        recent = self._recent.setdefault(key, RecentUse())
        shares = PoolShares(pool, weights, competing, recent, now)
        for use in snapshot.in_use:
            shape = shapes.get(use.shape_id)
            if use.tenant_id is None or shape is None:
                continue
            if use.incarnation_id in pool.incarnations:
                shares.hold_shape(use.tenant_id, use.shape_id, shape, use.times)
        for reserved in snapshot.reserved:
            if reserved.node_id in pool.nodes:
                shares.hold(reserved.tenant_id, reserved.resources)
        return shares

    def _competitors(
        self,
        waiting: Mapping[int, Set[int]],
        keys: Mapping[int, PoolKey],
        pools: Mapping[PoolKey, Pool],
        weights: Mapping[int, int],
        is_postponed: Callable[[SubqueueKey], bool] | None,
    ) -> Mapping[PoolKey, Competitors]:
        """Return who competes for each pool; with thousands of tenants not counted every round."""
        if self._count_cycle.is_due or not self._counted.keys() >= pools.keys():
            with self._count_cycle.step():
                tenants: dict[PoolKey, set[int]] = {key: set() for key in pools}
                for tenant, theirs in waiting.items():
                    for shape in theirs & keys.keys():
                        if is_postponed is None or not is_postponed((tenant, shape)):
                            tenants[keys[shape]].add(tenant)
                self._counted = {
                    key: Competitors(competing_for(key, pools, tenants), weights) for key in pools
                }
        return self._counted

    def _kinds(
        self,
        snapshot: FleetSnapshot,
        shapes: Mapping[int, Shape],
        waiting: Mapping[int, Set[int]],
    ) -> tuple[str, ...]:
        """Return the kinds of resources that count in shares."""
        special = self._special
        if not special:
            return SHARED_KINDS
        running = (
            (use.tenant_id, shapes[use.shape_id])
            for use in snapshot.in_use
            if use.tenant_id is not None and use.shape_id in special
        )
        waits = (
            (tenant, shapes[shape])
            for tenant, theirs in waiting.items()
            for shape in theirs & special
        )
        return contested_kinds([*running, *waits])

    def examine(self, shapes: Mapping[int, Shape]) -> None:
        """Note which of the shapes need more than a glance, if any was added."""
        if len(shapes) == self._examined:
            return
        self._examined = len(shapes)
        self._special = {id_ for id_, shape in shapes.items() if has_special_kinds(shape)}
        self.shared_by_users = {id_ for id_, shape in shapes.items() if shape.user_id is not None}

    def _forget(self, now: float) -> None:
        if now - self._forgot_at < FORGET_INTERVAL_SECONDS:
            return
        self._forgot_at = now
        for recent in (*self._recent.values(), *self._recent_of_users.values()):
            recent.forget(now)
        self._recent = {key: recent for key, recent in self._recent.items() if len(recent)}
        self._recent_of_users = {
            key: recent for key, recent in self._recent_of_users.items() if len(recent)
        }


def settle(shares: Shares, chosen: int, leased: Sequence[SubqueueKey]) -> None:
    """Take what tenants hold after the round into their recent use.

    If fewer tasks were leased than were `chosen`, and so charged, only those count.
    """
    if len(leased) < chosen:
        shares.reset()
        for key in leased:
            shares.charge(key)
    shares.settle()
