"""Decides which node takes which task.

First a filter that can say why not, then a score: the node that the task fills
most, so that big gaps stay open for big tasks and light tasks leave heavy machines
alone. The work is done per shape: once a shape fits nowhere, the rest of that
shape is passed over without another look.
"""

from collections.abc import Sequence

import msgspec

from duly.model.node import Known, Offer
from duly.model.resources import describe
from duly.model.shape import Shape


class Ask(msgspec.Struct, frozen=True):
    """A task that is to be placed; `avoid_node` is where it came to grief last."""

    task: int
    shape_id: int
    shape: Shape
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
        if ask.shape_id in hopeless:
            continue
        fit = [offer for offer in left.values() if fits(ask.shape, offer)]
        if not fit:
            hopeless.add(ask.shape_id)
            continue
        best = max(fit, key=lambda offer: score(ask, offer))
        placements.append(Placement(ask.task, best.incarnation_id))
        left[best.incarnation_id] = msgspec.structs.replace(
            best, free=best.free.plus(ask.shape.needs, -1)
        )
    return placements


def fits(shape: Shape, offer: Offer) -> bool:
    """Say whether `offer` can take a task of this shape now."""
    return (
        not offer.draining
        and not offer.free.shortage(shape.needs, offer.capacity)
        and not shape.missing(offer.labels)
    )


def could_ever_fit(shape: Shape, nodes: Sequence[Known]) -> bool:
    """Say whether any node has the labels, and is large enough when it is empty."""
    return any(
        not shape.missing(node.labels) and not node.capacity.shortage(shape.needs) for node in nodes
    )


def reasons_against(shape: Shape, offer: Offer) -> list[str]:
    """Say why `offer` cannot take a task of this shape now; an empty list means that it can."""
    if offer.draining:
        return ["draining"]
    if missing := shape.missing(offer.labels):
        return [f"not {name}={value}" for name, value in missing.items()]
    if never := offer.capacity.shortage(shape.needs):
        return [f"too small by {describe(kind, amount)}" for kind, amount in never.items()]
    busy = offer.free.shortage(shape.needs, offer.capacity)
    return [f"busy: {describe(kind, amount)} short" for kind, amount in busy.items()]


def score(ask: Ask, offer: Offer) -> tuple[bool, int, float, int]:
    """Prefer another node than the one that failed, then a sound one, then the one filled most."""
    used = offer.capacity.plus(offer.free, -1).plus(ask.shape.needs)
    is_another = offer.node_id != ask.avoid_node
    return is_another, -offer.penalty, used.share_of(offer.capacity), -offer.node_id
