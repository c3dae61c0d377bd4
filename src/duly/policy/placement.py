"""Decides which node takes which task: filter, score, place.

The filter explains why a node cannot take a task. The score prefers light nodes, and among nodes of
one size is best fit: the node that the task fills most, so that large gaps stay open for large
tasks. Work is done per shape: adjacent tasks
with the same ask are placed together, and once a shape fits nowhere, its other tasks are skipped.

On full nodes small tasks would take every gap and a large one would starve. So a task that
qualifies and fits nowhere gets a *hold*: the node nearest to fitting it keeps room for it. Other
tasks may use what the hold leaves over, or backfill if they end before any task that runs there: by
their cap, or very likely by what is known about tasks of their name. A misjudged task delays the
hold until it has ended, at its cap at the latest.

No tenant gets more than one hold, and no more than a quarter of the nodes that could fit a task
keep room. Holds are recomputed every round; a node with a hold does not fill up further, and so
stays the nearest.

At peak, some nodes keep headroom for urgent tasks (`duly.policy.budget.headroom`).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache

import msgspec

from duly.model.node import NodeProfile, Offer
from duly.model.resources import Resources, format_amount
from duly.model.shape import Shape
from duly.policy.budget.headroom import NO_HEADROOM, withhold

NODES_PER_HOLD = 4
"""One of so many nodes may keep room for a task that fits nowhere yet."""


class Ask(msgspec.Struct, frozen=True):
    """A task to be placed; `avoid_node` is the node where it last failed or was lost."""

    task: int
    shape_id: int
    shape: Shape
    avoid_node: int | None = None
    run_time_bound: timedelta = timedelta.max
    """Within which it ends, very likely or by its cap."""
    may_hold: bool = False
    """Whether a node keeps room for it if it fits nowhere."""
    tenant: int = 0
    may_use_headroom: bool = False


class Placement(msgspec.Struct, frozen=True):
    """A task and the incarnation of the node's agent chosen for it."""

    task: int
    incarnation: int


def place(
    asks: Sequence[Ask], offers: Sequence[Offer], headroom: Mapping[int, Resources] = NO_HEADROOM
) -> list[Placement]:
    """Place each task in turn on the best node that can take it.

    `asks` come in the order in which tasks are served. A task that fits nowhere is skipped; if
    it `may_hold`, the node nearest to fitting it keeps room for it. The `headroom` of nodes, by
    incarnation, is only for tasks that may use it.
    """
    left = {offer.incarnation_id: offer for offer in offers}
    holds: dict[int, Resources] = {}
    holders: set[int] = set()
    # The shortest bound of a task that fits nowhere, by its shape and whether it may use headroom:
    # one that may run longer fits nowhere either, since leases and holds only ever take room.
    fitting_nowhere: dict[tuple[int, bool], timedelta] = {}
    placements: list[Placement] = []
    served = 0
    while served < len(asks):
        ask = asks[served]
        alike, bound = (ask.shape_id, ask.may_use_headroom), ask.run_time_bound
        best = None
        if alike not in fitting_nowhere or bound < fitting_nowhere[alike]:
            best = _best(ask, _usable(ask, left.values(), headroom), holds)
        if best is not None:
            # A fuller node scores higher, so it stays the best for identical asks.
            limit = _fitting_count(best, ask, holds.get(best.incarnation_id), len(asks) - served)
            identical = _identical_asks(asks, served, limit)
            placements += [Placement(same.task, best.incarnation_id) for same in identical]
            node = left[best.incarnation_id]
            left[best.incarnation_id] = msgspec.structs.replace(
                node, free=node.free.plus(ask.shape.needs, -len(identical))
            )
            served += len(identical)
            continue
        served += 1
        fitting_nowhere[alike] = min(bound, fitting_nowhere.get(alike, bound))
        if not ask.may_hold or ask.tenant in holders:
            continue
        usable = _usable(ask, left.values(), headroom)
        if (holder := _node_to_hold(ask, usable, holds)) is not None:
            holds[holder.incarnation_id] = ask.shape.needs
            holders.add(ask.tenant)
    return placements


def _usable(
    ask: Ask, offers: Collection[Offer], headroom: Mapping[int, Resources]
) -> Collection[Offer]:
    """Return what is free for a task."""
    return withhold(offers, headroom) if headroom and not ask.may_use_headroom else offers


def _node_to_hold(
    ask: Ask, offers: Iterable[Offer], holds: Mapping[int, Resources]
) -> Offer | None:
    """Return the node that keeps room for a task; None if enough of them keep room already."""
    able = [offer for offer in offers if could_fit(ask.shape, offer)]
    unheld = [offer for offer in able if offer.incarnation_id not in holds]
    if len(able) - len(unheld) >= max(1, len(able) // NODES_PER_HOLD):
        return None
    return nearest_to_fitting(ask, unheld)


def _best(ask: Ask, offers: Iterable[Offer], holds: Mapping[int, Resources]) -> Offer | None:
    """Return the node with the best score among those that can take a task, or None."""
    fit = [
        offer
        for offer in offers
        if _fitting_count(offer, ask, holds.get(offer.incarnation_id), limit=1)
    ]
    return max(fit, key=lambda offer: score(ask, offer)) if fit else None


def _identical_asks(asks: Sequence[Ask], first: int, limit: int) -> Sequence[Ask]:
    """Return the ask at `first` and the identical ones that follow it, up to `limit`."""
    last, end = first + 1, min(first + limit, len(asks))
    while last < end and _are_identical(asks[first], asks[last]):
        last += 1
    return asks[first:last]


def _are_identical(first: Ask, second: Ask) -> bool:
    return (
        first.shape_id == second.shape_id
        and first.run_time_bound == second.run_time_bound
        and first.avoid_node == second.avoid_node
        and first.may_use_headroom == second.may_use_headroom
    )


def held_back(
    asks: Sequence[Ask], offers: Sequence[Offer], placements: Sequence[Placement]
) -> list[Ask]:
    """Return the asks that were not placed because the only room is held for other tasks."""
    needs = {ask.task: ask.shape.needs for ask in asks}
    left = {offer.incarnation_id: offer for offer in offers}
    for placement in placements:
        offer = left[placement.incarnation]
        left[placement.incarnation] = msgspec.structs.replace(
            offer, free=offer.free.plus(needs.pop(placement.task), -1)
        )
    fitting: dict[int, bool] = {}
    for ask in asks:
        if ask.task in needs and ask.shape_id not in fitting:
            fitting[ask.shape_id] = any(fits(ask.shape, offer) for offer in left.values())
    return [ask for ask in asks if ask.task in needs and fitting[ask.shape_id]]


def _fitting_count(offer: Offer, ask: Ask, hold: Resources | None, limit: int) -> int:
    """Return how many identical asks a node can take beside its hold, up to `limit`."""
    if not offer.takes_work or not ask.shape.suits(offer):
        return 0
    free = offer.free
    if hold is not None and ask.run_time_bound >= offer.next_end:
        free = free.plus(hold, -1)
    return free.count_fitting(ask.shape.needs, offer.capacity, limit)


def nearest_to_fitting(ask: Ask, offers: Iterable[Offer]) -> Offer | None:
    """Return the node likely to fit a task soonest, or None if none could.

    When running tasks will end is unknown, so the node that misses least is taken.
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
    """Return the largest shortage of any kind, as a share of the node's capacity."""
    missing = offer.free.shortage(shape.needs, offer.capacity)
    whole = dict(offer.capacity.items())
    return max((amount / whole[kind] for kind, amount in missing.items()), default=0.0)


def fits(shape: Shape, offer: Offer) -> bool:
    """Return True if the node can take a task of this shape now."""
    return (
        offer.takes_work
        and not offer.free.shortage(shape.needs, offer.capacity)
        and shape.suits(offer)
    )


def placeable_count(shape: Shape, offers: Iterable[Offer], limit: int) -> int:
    """Return how many tasks of this shape could be placed now, up to `limit`."""
    count = 0
    for offer in offers:
        if count >= limit:
            break
        if fits(shape, offer):
            count += offer.free.count_fitting(shape.needs, offer.capacity, limit)
    return min(count, limit)


def could_fit(shape: Shape, offer: Offer) -> bool:
    """Return True if the node can take a task of this shape once its running tasks have ended."""
    return fits(shape, msgspec.structs.replace(offer, free=offer.free.plus(offer.used)))


def could_ever_fit(shape: Shape, nodes: Sequence[NodeProfile]) -> bool:
    """Return True if any node suits the shape and, when empty, has enough capacity."""
    return any(shape.suits(node) and not node.capacity.shortage(shape.needs) for node in nodes)


def reasons_against(shape: Shape, offer: Offer) -> list[str]:
    """Return why the node cannot take a task of this shape now; empty if it can."""
    if offer.draining:
        return ["draining"]
    if offer.shortage is not None:
        return [f"short of {offer.shortage}"]
    if shape.function is None and offer.worker is not None:
        return ["a worker"]
    if not shape.suits(msgspec.structs.replace(offer, labels=shape.requires)):
        return ["not a worker that knows the function"]
    if missing := shape.missing(offer.labels):
        return [f"not {name}={value}" for name, value in missing.items()]
    if never := offer.capacity.shortage(shape.needs):
        return [f"too small by {format_amount(kind, amount)}" for kind, amount in never.items()]
    busy = offer.free.shortage(shape.needs, offer.capacity)
    return [f"busy: {format_amount(kind, amount)} short" for kind, amount in busy.items()]


def score(ask: Ask, offer: Offer) -> tuple[bool, int, int, int, float, int]:
    """Prefer another node than `avoid_node`, a healthy one, a light one, then the one filled most.

    A node is the lighter, the fewer special kinds it has that the task does not need, such as GPUs,
    and then the smaller it is.
    """
    capacity, needs = offer.capacity, ask.shape.needs
    used = capacity.plus(offer.free, -1).plus(needs)
    return (
        offer.node_id != ask.avoid_node,
        -offer.penalty,
        -len(capacity.extra.keys() - needs.extra.keys()) if capacity.extra else 0,
        -_size_class(capacity.cpu_milli, capacity.memory_mb),
        used.share_of(capacity),
        -offer.node_id,
    )


@cache
def _size_class(cpu_milli: int, memory_mb: int) -> int:
    """Return the size of a node to a power of two, a core being worth 4 GiB of memory.

    Machines of one type differ by some memory, and should be filled one after another.
    """
    return round(math.log2(max(cpu_milli / 1000 + memory_mb / 4096, 0.001)))
