"""Decides which node takes which task.

First a filter that can say why not, then a score: the node that the task fills
most, so that big gaps stay open for big tasks and light tasks leave heavy machines
alone. The work is done per shape: once a shape fits nowhere, the rest of that
shape is passed over without another look.
"""

from collections.abc import Sequence

import msgspec

from duly.model.node import Offer
from duly.model.resources import Resources, describe


class Ask(msgspec.Struct, frozen=True):
    """A task that is to be placed; `avoid_node` is where it came to grief last."""

    task: int
    shape: int
    needs: Resources
    avoid_node: int | None = None


class Placement(msgspec.Struct, frozen=True):
    """A task and a node, chosen for each other."""

    task: int
    incarnation: int


def place(asks: Sequence[Ask], offers: Sequence[Offer]) -> list[Placement]:
    """Give each task in turn the best node that can take it.

    `asks` come in the order in which they are to be served. A task that fits nowhere now
    is passed over, not waited for.
    """
    left = {offer.incarnation_id: offer for offer in offers}
    hopeless: set[int] = set()
    placements = []
    for ask in asks:
        if ask.shape in hopeless:
            continue
        fit = [offer for offer in left.values() if fits(ask.needs, offer)]
        if not fit:
            hopeless.add(ask.shape)
            continue
        best = max(fit, key=lambda offer: score(ask, offer))
        placements.append(Placement(ask.task, best.incarnation_id))
        left[best.incarnation_id] = msgspec.structs.replace(
            best, free=best.free.plus(ask.needs, -1)
        )
    return placements


def fits(needs: Resources, offer: Offer) -> bool:
    """Say whether `offer` can take `needs` now."""
    return not offer.draining and not offer.free.shortage(needs, offer.capacity)


def could_ever_fit(needs: Resources, capacities: Sequence[Resources]) -> bool:
    """Say whether any node is large enough for `needs` when it is empty."""
    return any(not capacity.shortage(needs) for capacity in capacities)


def reasons_against(needs: Resources, offer: Offer) -> list[str]:
    """Say why `offer` cannot take `needs` now; an empty list means that it can."""
    if offer.draining:
        return ["draining"]
    if never := offer.capacity.shortage(needs):
        return [f"too small by {describe(kind, amount)}" for kind, amount in never.items()]
    busy = offer.free.shortage(needs, offer.capacity)
    return [f"busy: {describe(kind, amount)} short" for kind, amount in busy.items()]


def score(ask: Ask, offer: Offer) -> tuple[bool, float, int]:
    """Prefer another node than the one that failed, then the one that is filled most."""
    used = offer.capacity.plus(offer.free, -1).plus(ask.needs)
    return offer.node_id != ask.avoid_node, used.share_of(offer.capacity), -offer.node_id
