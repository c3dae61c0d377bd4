"""Decides which node takes which task.

First a filter that can say why not, then a score: the node that the task fills
most, so that big gaps stay open for big tasks and light tasks leave heavy machines
alone. The work is done per shape: tasks next to each other that ask the same are placed
together, and once a shape fits nowhere, the rest of it is passed over without another look.

On full nodes small tasks would take every gap, and a large one would never start. So a
task that presses and fits nowhere gets a *hold*: the node that is nearest to fitting
it keeps room for it. Others may use what the hold leaves over, or slip in if they must have
ended, by their caps, before anything else that runs there. Holds are decided anew in every
round; the node that has one fills up no further, and so stays the nearest.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from duly.model.node import Known, Offer
from duly.model.resources import Resources, describe
from duly.model.shape import Shape


class Ask(msgspec.Struct, frozen=True):
    """A task that is to be placed; `avoid_node` is where it came to grief last."""

    task: int
    shape_id: int
    shape: Shape
    avoid_node: int | None = None
    cap: timedelta = timedelta.max
    presses: bool = False
    """Whether room is kept for it if there is none."""


class Placement(msgspec.Struct, frozen=True):
    """A task and a node, chosen for each other."""

    task: int
    incarnation: int


def place(asks: Sequence[Ask], offers: Sequence[Offer]) -> list[Placement]:
    """Give each task in turn the best node that can take it.

    `asks` come in the order in which they are to be served. A task that fits nowhere now
    is passed over; if it presses, a node keeps room for it.
    """
    left = {offer.incarnation_id: offer for offer in offers}
    holds: dict[int, Resources] = {}
    hopeless: set[tuple[int, timedelta]] = set()
    placements: list[Placement] = []
    served = 0
    while served < len(asks):
        ask = asks[served]
        kind = (ask.shape_id, ask.cap)
        best = None if kind in hopeless else _best(ask, left.values(), holds)
        if best is not None:
            # The fuller it is, the better: it stays the best for those that ask the same.
            most = _times(best, ask, holds.get(best.incarnation_id), len(asks) - served)
            alike = _alike(asks, served, most)
            placements += [Placement(one.task, best.incarnation_id) for one in alike]
            left[best.incarnation_id] = msgspec.structs.replace(
                best, free=best.free.plus(ask.shape.needs, -len(alike))
            )
            served += len(alike)
            continue
        served += 1
        hopeless.add(kind)
        if ask.presses and len(holds) < len(left):
            free = (offer for offer in left.values() if offer.incarnation_id not in holds)
            if (nearest := nearest_room(ask, free)) is not None:
                holds[nearest.incarnation_id] = ask.shape.needs
    return placements


def _best(ask: Ask, offers: Iterable[Offer], holds: Mapping[int, Resources]) -> Offer | None:
    """Return the node that should take a task, or None if there is none that can."""
    fit = [one for one in offers if _times(one, ask, holds.get(one.incarnation_id), 1)]
    return max(fit, key=lambda offer: score(ask, offer)) if fit else None


def _alike(asks: Sequence[Ask], first: int, most: int) -> Sequence[Ask]:
    """Return the `first` of the asks and those next to it that ask the same, up to `most`."""
    last, end = first + 1, min(first + most, len(asks))
    while last < end and _asks_the_same(asks[first], asks[last]):
        last += 1
    return asks[first:last]


def _asks_the_same(one: Ask, other: Ask) -> bool:
    return (
        one.shape_id == other.shape_id
        and one.cap == other.cap
        and one.avoid_node == other.avoid_node
    )


def held_back(
    asks: Sequence[Ask], offers: Sequence[Offer], placements: Sequence[Placement]
) -> list[Ask]:
    """Return the `asks` that were not placed though there is room: it is kept for others."""
    needs = {ask.task: ask.shape.needs for ask in asks}
    left = {offer.incarnation_id: offer for offer in offers}
    for one in placements:
        offer = left[one.incarnation]
        left[one.incarnation] = msgspec.structs.replace(
            offer, free=offer.free.plus(needs.pop(one.task), -1)
        )
    fitting: dict[int, bool] = {}
    for ask in asks:
        if ask.task in needs and ask.shape_id not in fitting:
            fitting[ask.shape_id] = any(fits(ask.shape, offer) for offer in left.values())
    return [ask for ask in asks if ask.task in needs and fitting[ask.shape_id]]


def _times(offer: Offer, ask: Ask, hold: Resources | None, most: int) -> int:
    """Return how many tasks that ask the same a node can take beside a hold, up to `most`."""
    if not offer.takes_work or ask.shape.missing(offer.labels):
        return 0
    free = offer.free
    if hold is not None and ask.cap >= offer.next_end:
        free = free.plus(hold, -1)
    return free.times(ask.shape.needs, offer.capacity, most)


def nearest_room(ask: Ask, offers: Iterable[Offer]) -> Offer | None:
    """Return the node that can take a task soonest once others have ended, or None.

    The times at which tasks will end are not known; how much is missing is.
    """
    able = [offer for offer in offers if could_fit(ask.shape, offer)]
    if not able:
        return None
    return min(
        able,
        key=lambda offer: (
            offer.node_id == ask.avoid_node,
            offer.penalty,
            _missing_share(ask.shape, offer),
            offer.node_id,
        ),
    )


def _missing_share(shape: Shape, offer: Offer) -> float:
    """Return the largest share of the node's capacity that is still missing of any kind."""
    missing = offer.free.shortage(shape.needs, offer.capacity)
    whole = dict(offer.capacity.items())
    return max((amount / whole[kind] for kind, amount in missing.items()), default=0.0)


def fits(shape: Shape, offer: Offer) -> bool:
    """Say whether `offer` can take a task of this shape now."""
    return (
        offer.takes_work
        and not offer.free.shortage(shape.needs, offer.capacity)
        and not shape.missing(offer.labels)
    )


def room(shape: Shape, offers: Iterable[Offer], most: int) -> int:
    """Return how many tasks of this shape could be placed now, and no more than `most`."""
    found = 0
    for offer in offers:
        if found >= most:
            break
        if fits(shape, offer):
            found += offer.free.times(shape.needs, offer.capacity, most)
    return min(found, most)


def could_fit(shape: Shape, offer: Offer) -> bool:
    """Say whether `offer` can take a task of this shape once the tasks there have ended."""
    return fits(shape, msgspec.structs.replace(offer, free=offer.free.plus(offer.used)))


def could_ever_fit(shape: Shape, nodes: Sequence[Known]) -> bool:
    """Say whether any node has the labels, and is large enough when it is empty."""
    return any(
        not shape.missing(node.labels) and not node.capacity.shortage(shape.needs) for node in nodes
    )


def reasons_against(shape: Shape, offer: Offer) -> list[str]:
    """Say why `offer` cannot take a task of this shape now; an empty list means that it can."""
    if offer.draining:
        return ["draining"]
    if offer.shortage is not None:
        return [f"short of {offer.shortage}"]
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
