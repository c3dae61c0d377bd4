"""Decides which nodes keep room for urgent tasks at peak time.

The headroom is `scheduling.urgent_headroom` percent of the fleet, in whole slots of the default
tier, on as few nodes as possible, so that most nodes are not concerned. Urgent tasks to which their
tenants are entitled may use it; for all others, a node has that much less free. A task that would
fit on no node because of it, not even on an idle one, may use it as well. Small fleets have none.
"""

from collections.abc import Iterable, Mapping
from heapq import nsmallest

import msgspec

from duly.model.node import Offer
from duly.model.requests.allowance import DEFAULT_TIER
from duly.model.resources import TIERS, Resources

SLOT = TIERS[DEFAULT_TIER]
MIN_FLEET_SLOTS = 20
"""Smaller fleets keep no headroom: a slot would be too much of them."""
UNLIMITED = 2**31
NO_HEADROOM: Mapping[int, Resources] = {}


def slots_to_keep(offers: Iterable[Offer], percent: int) -> int:
    """Return how many slots of the default tier are kept, given all nodes."""
    total = sum(_count_slots(offer.capacity, offer) for offer in offers if offer.takes_work)
    return total * percent // 100 if total >= MIN_FLEET_SLOTS else 0


def keep(offers: Iterable[Offer], slots: int) -> Mapping[int, Resources]:
    """Return what nodes keep, by incarnation, so that it is `slots` slots of the default tier.

    Nodes that could keep more of them come first, then those with the most free: there the headroom
    is available soonest, and as others may not use it, the same nodes are chosen again.
    """
    if not slots:
        return NO_HEADROOM
    able = [
        (
            offer.penalty,
            -min(slots, most),
            -min(most, _count_slots(offer.free, offer)),
            offer.node_id,
            offer.incarnation_id,
        )
        for offer in offers
        if offer.takes_work and (most := _count_slots(offer.free.plus(offer.used), offer))
    ]
    kept: dict[int, Resources] = {}
    for _, most_kept, _, _, incarnation in nsmallest(slots, able):
        count = min(slots, -most_kept)
        kept[incarnation] = Resources().plus(SLOT, count)
        slots -= count
        if not slots:
            break
    return kept


def withhold(offers: Iterable[Offer], kept: Mapping[int, Resources]) -> list[Offer]:
    """Return the offers as tasks see them that may not use the headroom."""
    return [
        offer
        if (headroom := kept.get(offer.incarnation_id)) is None
        else msgspec.structs.replace(offer, free=offer.free.plus(headroom, -1))
        for offer in offers
    ]


def _count_slots(resources: Resources, offer: Offer) -> int:
    return resources.count_fitting(SLOT, offer.capacity, UNLIMITED)
