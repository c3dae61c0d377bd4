"""Finds out whether it is peak time, on any server.

The leader stores changes of its state. What follows from the present load is computed here, so that
the answer is right even if no round has run for a while. For a second or two after a change, while
the load is between the thresholds, the answer may still be the one before.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from duly.config import SchedulingSettings
from duly.model.node import Offer
from duly.model.queues.peak import NO_PEAK, PeakState
from duly.model.queues.queue import QueueDefinitions
from duly.model.shape import Shape
from duly.policy.budget.peak import Load, Postponement, next_peak
from duly.policy.queueing import Order
from duly.store.database import Connection
from duly.store.fleet import servers


async def read_peak(
    conn: Connection, offers: Sequence[Offer], scheduling: SchedulingSettings, now: datetime
) -> PeakState:
    """Return whether it is peak time, given what the nodes have free."""
    load = Load(offers)
    if not any(share.exceeds(scheduling.off_peak_percent) for share in load.shares):
        return NO_PEAK
    return next_peak(await servers.read_peak(conn), load, scheduling, now)


def order_at(
    stored: PeakState,
    shapes: Mapping[int, Shape],
    definitions: QueueDefinitions,
    offers: Sequence[Offer],
    scheduling: SchedulingSettings,
    now: datetime,
) -> Order:
    """Return the order of a round, by which postponed tasks have no precedence."""
    load = Load(offers)
    peak = next_peak(stored, load, scheduling, now)
    return Order(
        {id_: shape.queue for id_, shape in shapes.items() if shape.queue},
        shapes,
        now=now,
        urgent_slack=scheduling.urgent_slack,
        postponement=Postponement(peak, load, scheduling, now),
        definitions=definitions,
    )
