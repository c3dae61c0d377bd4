"""Computes what tenants hold of the fleet, and what each is entitled to.

The *pool* of a task are the ready nodes with the labels that it requires. A tenant's *share* of a
pool is its dominant share: the largest fraction of the pool's capacity, over the kinds of
resources, that its running tasks, reservations and holds take there. Its *fair share* is its weight
over the weights of all tenants that have tasks which may start on one of its nodes; what tenants
without such tasks hold is not divided. A tenant is *entitled* to a task if its share with that task
stays within its fair share.

Shares change by whole tasks. So tenants beyond their fair share take turns by their recent use
(`duly.policy.fairness.recent_use`), which is fair over time.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from math import inf
from typing import NamedTuple

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.budget.limits import amount
from duly.policy.fairness.recent_use import CHARGE_FACTOR, ROUNDING, RecentUse

SHARED_KINDS = ("cpu_milli", "memory_mb", "disk_mb")
"""The kinds that always count. Others count while two tenants need them: the only user of a licence
must not lose its turn for processors to it."""
DEFAULT_WEIGHT = 1


class PoolKey(NamedTuple):
    """The labels that the nodes of a pool have, and whose workers they are, if they are any's."""

    labels: frozenset[tuple[str, str]] = frozenset()
    workers_of: int | None = None


def pool_key(shape: Shape) -> PoolKey:
    """Return the key of the pool in which tasks of a shape may run."""
    owner = None if shape.function is None else shape.function.tenant_id
    return PoolKey(frozenset(shape.requires.items()), owner)


class Pool:
    """The ready nodes with some labels, or workers of a tenant, and their capacity by kind."""

    def __init__(self, key: PoolKey, offers: Iterable[Offer], kinds: Sequence[str]):
        """Take the nodes among `offers` that belong to the pool; only `kinds` count.

        Of workers none does: a call takes no part of what tenants share.
        """
        nodes = [
            offer
            for offer in offers
            if offer.takes_work
            and (None if offer.worker is None else offer.worker.tenant_id) == key.workers_of
            and key.labels <= offer.labels.items()
        ]
        if key.workers_of is not None:
            kinds = ()
        self.incarnations = {offer.incarnation_id for offer in nodes}
        self.nodes = {offer.node_id for offer in nodes}
        self._capacity = [(kind, total) for kind in kinds if (total := _total(kind, nodes)) > 0]

    def fractions(self, needs: Resources) -> tuple[float, ...]:
        """Return which fraction of the pool `needs` take, by kind."""
        return tuple(amount(needs, kind) / total for kind, total in self._capacity)

    def overlaps(self, other: "Pool") -> bool:
        """Return True if the pools have a node in common."""
        return not self.nodes.isdisjoint(other.nodes)


class Competitors:
    """The tenants with tasks that may start in a pool, and the sum of their weights."""

    def __init__(self, tenants: Set[int], weights: Mapping[int, int]) -> None:
        self._tenants = tenants
        each = [weights.get(tenant, DEFAULT_WEIGHT) for tenant in tenants]
        self.total_weight = sum(each)
        self.heaviest = max(each, default=0)

    def __contains__(self, tenant: int) -> bool:
        """Return True if a tenant has tasks that may start."""
        return tenant in self._tenants


class TenantShare:
    """What one tenant holds of a pool during a round, what it may hold, and its recent use."""

    __slots__ = ("_entitlement", "_recent_use", "_weight", "charged", "used")

    def __init__(
        self, held: Sequence[float] | None, fair_share: float, recent_use: float, weight: int
    ) -> None:
        self.used = None if held is None else list(held)
        """Fractions of the pool by kind, the tasks that were chosen included; None for nothing."""
        self.charged = 0.0
        """The shares of the tasks that were chosen."""
        self._entitlement = fair_share + ROUNDING
        self._recent_use = recent_use
        self._weight = weight

    def is_entitled(self, fractions: Sequence[float]) -> bool:
        """Return True if the share stays within the fair share with one more task."""
        most = self._entitlement
        if self.used is None:
            return max(fractions, default=0.0) <= most
        return all(held + more <= most for held, more in zip(self.used, fractions, strict=True))

    def charge(self, fractions: Sequence[float]) -> None:
        """Count a task that was chosen."""
        used = self.used
        self.used = (
            list(fractions)
            if used is None
            else [held + more for held, more in zip(used, fractions, strict=True)]
        )
        self.charged += max(fractions, default=0.0)

    @property
    def use_per_weight(self) -> float:
        """The recent use by which tenants beyond their fair share take turns."""
        return (self._recent_use + CHARGE_FACTOR * self.charged) / self._weight

    @property
    def share(self) -> float:
        """The dominant share."""
        return max(self.used, default=0.0) if self.used else 0.0


class PoolShares:
    """The shares of one pool during a round, charged as the window fills."""

    def __init__(
        self,
        pool: Pool,
        weights: Mapping[int, int],
        competing: Competitors,
        recent: RecentUse,
        now: float,
        divided: float = 1.0,
    ) -> None:
        """Divide the `pool` between the `competing` tenants; `recent` is their use before.

        The users of a tenant divide its fair share likewise: then that much is `divided`.
        """
        self.pool = pool
        self._divided = divided
        self._weights = weights
        self._competing = competing
        self._recent = recent
        self._now = now
        self._fractions: dict[int, tuple[float, ...]] = {}
        """Of the pool, by shape."""
        self._held: dict[int, list[float]] = {}
        """Fractions of the pool in use before the round, by tenant and kind."""
        self._of_tenant: dict[int, TenantShare] = {}
        """Of the tenants that were asked for; dropped when what they hold changes otherwise."""
        self._fair_per_weight: float | None = None

    def of_tenant(self, tenant: int) -> TenantShare:
        """Return what a tenant holds and may hold; charges to it count in the pool."""
        if (share := self._of_tenant.get(tenant)) is None:
            weight = self.weight(tenant)
            share = self._of_tenant[tenant] = TenantShare(
                self._held.get(tenant),
                self._fair_share_per_weight() * weight,
                self._recent.of(tenant, self._now),
                weight,
            )
        return share

    def hold(self, tenant: int, resources: Resources, times: int = 1) -> None:
        """Count what a tenant holds before the round: running tasks or a reservation."""
        self._hold(tenant, self.pool.fractions(resources), times)

    def hold_shape(self, tenant: int, shape_id: int, shape: Shape, times: int) -> None:
        """Count running tasks of a shape."""
        self._hold(tenant, self.fractions(shape_id, shape), times)

    def fractions(self, shape_id: int, shape: Shape) -> tuple[float, ...]:
        """Return which fraction of the pool a task of a shape takes, by kind."""
        if (fractions := self._fractions.get(shape_id)) is None:
            fractions = self._fractions[shape_id] = self.pool.fractions(shape.needs)
        return fractions

    def settle(self) -> None:
        """Take what tenants hold now, with the tasks that were charged, into their recent use."""
        shares = {tenant: max(held, default=0.0) for tenant, held in self._held.items()}
        charged = [(tenant, each) for tenant, each in self._of_tenant.items() if each.charged]
        shares.update((tenant, each.share) for tenant, each in charged)
        self._recent.observe(shares, self._now)
        for tenant, each in charged:
            self._recent.charge(tenant, each.charged, self._now)

    def share(self, tenant: int) -> float:
        """Return a tenant's share, with what it was charged."""
        return self.of_tenant(tenant).share

    def fair_share(self, tenant: int) -> float:
        """Return what a tenant may hold before it has to wait for others."""
        return self._fair_share_per_weight() * self.weight(tenant)

    def weight(self, tenant: int) -> int:
        """Return the weight of a tenant."""
        return self._weights.get(tenant, DEFAULT_WEIGHT)

    def is_entitled(self, tenant: int, fractions: Sequence[float]) -> bool:
        """Return True if the tenant's share stays within its fair share with one more task."""
        return self.of_tenant(tenant).is_entitled(fractions)

    def charge(self, tenant: int, fractions: Sequence[float]) -> None:
        """Count a task that was chosen."""
        self.of_tenant(tenant).charge(fractions)

    def reset(self) -> None:
        """Take back what was charged."""
        self._of_tenant = {}

    def use_per_weight(self, tenant: int) -> float:
        """Return the recent use by which tenants beyond their fair share take turns."""
        return self.of_tenant(tenant).use_per_weight

    @property
    def largest_fair_share(self) -> float:
        """Return the fair share of the tenant with the largest weight."""
        return self._fair_share_per_weight() * self._competing.heaviest

    def _fair_share_per_weight(self) -> float:
        if self._fair_per_weight is None:
            self._fair_per_weight = self._divide()
        return self._fair_per_weight

    def _divide(self) -> float:
        competing = self._competing
        if not competing.total_weight:
            return inf
        others = sum(
            max(held, default=0.0) for tenant, held in self._held.items() if tenant not in competing
        )
        return max(0.0, self._divided - others) / competing.total_weight

    def _hold(self, tenant: int, fractions: Sequence[float], times: int) -> None:
        self._of_tenant, self._fair_per_weight = {}, None
        if (held := self._held.get(tenant)) is None:
            self._held[tenant] = [times * fraction for fraction in fractions]
        else:
            for kind, fraction in enumerate(fractions):
                held[kind] += times * fraction


def competing_for(
    key: PoolKey, pools: Mapping[PoolKey, Pool], tenants: Mapping[PoolKey, Set[int]]
) -> Set[int]:
    """Return the tenants with tasks that may start on a node of a pool.

    `tenants` are those with tasks for exactly one pool, by the key of it.
    """
    overlapping = [tenants[other] for other in pools if pools[key].overlaps(pools[other])]
    return overlapping[0] if len(overlapping) == 1 else set().union(*overlapping)


def has_special_kinds(shape: Shape) -> bool:
    """Return True if tasks of a shape need kinds of resources that do not always count."""
    return any(needed > 0 and kind not in SHARED_KINDS for kind, needed in shape.needs.items())


def contested_kinds(needs: Iterable[tuple[int, Shape]]) -> tuple[str, ...]:
    """Return the kinds of resources that count, given the tenant and shape of tasks.

    Kinds besides cpu, memory and disk count while tasks of two tenants need them.
    """
    tenants: dict[str, int] = {}
    contested: set[str] = set()
    for tenant, shape in needs:
        for kind, needed in shape.needs.items():
            is_special = needed > 0 and kind not in SHARED_KINDS
            if is_special and tenants.setdefault(kind, tenant) != tenant:
                contested.add(kind)
    return (*SHARED_KINDS, *sorted(contested))


def _total(kind: str, nodes: Iterable[Offer]) -> int:
    return sum(amount(offer.capacity, kind) for offer in nodes)
