"""What a scheduling round has read, and what it has decided."""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from duly.model.node import Offer
from duly.policy.budget.limits import Budget
from duly.policy.budget.queue_room import QueueRoom
from duly.policy.fairness.turns import Shares
from duly.policy.placement import Ask, Placement
from duly.store.fleet.fleet_snapshot import FleetSnapshot
from duly.store.tasks.subqueues import Head


class LoadedFleet(NamedTuple):
    """What a round has read."""

    snapshot: FleetSnapshot
    offers: Sequence[Offer]
    shapes: Set[int]
    """Those of waiting tasks."""
    counted: Set[int]
    """The tenants whose usage was counted, because limits apply to it."""
    is_shared: bool
    """Whether tenants, or users of one, compete."""


class RoundDecision(NamedTuple):
    """What a round has decided."""

    window: Sequence[Head]
    asks: Sequence[Ask]
    placements: Sequence[Placement]
    fitting: Mapping[int, int]
    """How many tasks of each shape fit on the nodes."""
    slots: Mapping[int, int]
    """The same within the limits of queues."""
    budget: Budget
    room: QueueRoom
    shares: Shares | None
    """None if one tenant has tasks."""
