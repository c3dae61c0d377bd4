"""Decides how much more a queue may start: within its hours, unless paused, up to its share.

These bounds are hard: they hold for tasks whose slack has run out as well. A share is counted as
the largest among processors, memory and disk, of what the nodes that take work have.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from duly.model.node import Offer
from duly.model.queues.queue import BUILT_IN_QUEUES, OpeningHours, QueueDefinition, QueueDefinitions
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.shape import Shape
from duly.policy.budget.limits import UNBOUNDED, amount
from duly.policy.fairness.shares import SHARED_KINDS
from duly.policy.schedules.wall_clock import instant_of, wall_of

DAY = timedelta(days=1)


class ShareLimit(msgspec.Struct, frozen=True):
    """The resource of which one more task would exceed its queue's share, with the figures."""

    kind: str
    needed: int
    used: int
    limit: int


def is_open(hours: OpeningHours | None, now: datetime) -> bool:
    """Return True if tasks may start now."""
    if hours is None:
        return True
    at = wall_of(now, ZoneInfo(hours.timezone)).time()
    if hours.opens < hours.closes:
        return hours.opens <= at < hours.closes
    return at >= hours.opens or at < hours.closes


def next_opening(hours: OpeningHours, now: datetime) -> datetime:
    """Return when a queue that is closed now opens next."""
    zone = ZoneInfo(hours.timezone)
    opening = datetime.combine(wall_of(now, zone), hours.opens)
    at = instant_of(opening, zone)
    # A clock change may jump over the window of a day.
    while at <= now or not is_open(hours, at):
        opening += DAY
        at = instant_of(opening, zone)
    return at


def may_start(definition: QueueDefinition, now: datetime) -> bool:
    """Return True if a queue is neither paused nor closed."""
    return not definition.is_paused and is_open(definition.hours, now)


def share_limit(
    definition: QueueDefinition, capacity: Resources, held: Resources, needs: Resources
) -> ShareLimit | None:
    """Return the kind of which one more task would exceed the queue's share of the capacity."""
    if definition.max_share is None:
        return None
    for kind in SHARED_KINDS:
        limit = _limit(definition.max_share, amount(capacity, kind))
        used, needed = amount(held, kind), amount(needs, kind)
        if needed > 0 and used + needed > limit:
            return ShareLimit(kind, needed, used, limit)
    return None


def fleet_capacity(offers: Iterable[Offer]) -> Resources:
    """Return what the nodes that take work have together; workers are nobody else's."""
    capacity = NO_RESOURCES
    for offer in offers:
        if offer.takes_work and offer.worker is None:
            capacity = capacity.plus(offer.capacity)
    return capacity


def held_by_queue(
    running: Iterable[tuple[int, int]], shapes: Mapping[int, Shape], definitions: QueueDefinitions
) -> dict[str, Resources]:
    """Return what the running tasks of each queue with a maximum share hold.

    `running` are shapes, each with how many tasks of it run.
    """
    held: dict[str, Resources] = {}
    for shape_id, times in running:
        if (shape := shapes.get(shape_id)) is None:
            continue
        definition = definitions.get(shape.queue)
        if definition.max_share is not None:
            before = held.get(definition.name, NO_RESOURCES)
            held[definition.name] = before.plus(shape.needs, times)
    return held


class QueueRoom:
    """What the tasks of each queue may still start in a scheduling round."""

    def __init__(
        self,
        definitions: QueueDefinitions,
        shapes: Mapping[int, Shape],
        capacity: Resources,
        held: Mapping[str, Resources],
        now: datetime,
    ) -> None:
        """Start from the `capacity` of the fleet, and what running tasks of each queue hold."""
        self._definitions = definitions
        self.is_restricted = definitions.is_restricted
        """Whether any queue is bounded at all."""
        self._shapes = shapes
        self._capacity = capacity
        self._held = dict(held)
        self._now = now
        self._shut = {
            name
            for name, definition in definitions.by_name.items()
            if not may_start(definition, now)
        }

    def copy(self) -> "QueueRoom":
        """Return a copy that can be charged independently."""
        if not self.is_restricted:
            return self
        return QueueRoom(self._definitions, self._shapes, self._capacity, self._held, self._now)

    def of(self, shape_id: int) -> int:
        """Return how many more tasks of a shape its queue may start."""
        if not self.is_restricted:
            return UNBOUNDED
        shape = self._shapes[shape_id]
        definition = self._definitions.get(shape.queue)
        if definition.name in self._shut:
            return 0
        if definition.max_share is None:
            return UNBOUNDED
        held, room = self._held.get(definition.name, NO_RESOURCES), UNBOUNDED
        for kind in SHARED_KINDS:
            if (needed := amount(shape.needs, kind)) > 0:
                limit = _limit(definition.max_share, amount(self._capacity, kind))
                room = min(room, (limit - amount(held, kind)) // needed)
        return max(room, 0)

    def bound(self, slots: Mapping[int, int]) -> Mapping[int, int]:
        """Return the `slots` of shapes whose queue may start tasks, no more than it may start.

        The tasks of other shapes take no part in a round, nor do their tenants compete by them.
        """
        if not self.is_restricted:
            return slots
        return {
            shape: min(count, startable)
            for shape, count in slots.items()
            if shape in self._shapes and (startable := self.of(shape))
        }

    def counts(self, shape_id: int) -> bool:
        """Return True if tasks of a shape count against the maximum share of their queue."""
        if not self.is_restricted:
            return False
        return self._definitions.get(self._shapes[shape_id].queue).max_share is not None

    def charge(self, shape_id: int) -> None:
        """Count one more task as started."""
        if not self.is_restricted:
            return
        shape = self._shapes[shape_id]
        definition = self._definitions.get(shape.queue)
        if definition.max_share is not None:
            held = self._held.get(definition.name, NO_RESOURCES)
            self._held[definition.name] = held.plus(shape.needs)


def _limit(max_share: float, capacity: int) -> int:
    # Rounded first: 29 % of 100 are 28.999999999999996 in floating point.
    return int(round(max_share * capacity, 6))


UNLIMITED_ROOM = QueueRoom(BUILT_IN_QUEUES, {}, NO_RESOURCES, {}, datetime.min.replace(tzinfo=UTC))
"""The room while no queue is restricted."""
