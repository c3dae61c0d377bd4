"""What the nodes have to give, and what of it has been given.

All of it is read in one statement, as of one moment: a lease names the revision of the
offer that it was decided by, and whatever was reserved before that revision is in it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.model.node import Offer
from duly.model.resources import NOTHING, Resources
from duly.model.shape import Shape
from duly.store.database import Connection, load_statements

SQL = load_statements("stock.sql")


class Declared(msgspec.Struct, frozen=True):
    """An incarnation that may take work, with all that it has."""

    incarnation_id: int
    node_id: int
    name: str
    capacity: Resources
    labels: dict[str, str]
    draining: bool
    revision: int
    shortage: str | None = None


class InUse(msgspec.Struct, frozen=True):
    """How many attempts of a shape an incarnation has, and when the first must have ended."""

    incarnation_id: int
    shape_id: int
    times: int
    next_end: float
    """Seconds from now."""
    tenant_id: int | None = None
    """Whose they are, if that was asked for."""


class Reserved(msgspec.Struct, frozen=True):
    """A part of a node that is kept free of tasks."""

    node_id: int
    resources: Resources
    tenant_id: int


class Marks(msgspec.Struct, frozen=True):
    """By what limits, and up to what, tenants were counted; a lease names both."""

    revision: int
    given: int


class Stock(msgspec.Struct, frozen=True):
    """What there is, and what is taken."""

    offers: list[Declared]
    in_use: list[InUse]
    reserved: list[Reserved]
    marks: Marks
    now: datetime

    @property
    def shapes(self) -> set[int]:
        """Return the shapes of what runs."""
        return {one.shape_id for one in self.in_use}

    def reserved_by_node(self) -> dict[int, Resources]:
        """Return what is reserved on each node that anything is reserved on."""
        reserved: dict[int, Resources] = {}
        for one in self.reserved:
            reserved[one.node_id] = reserved.get(one.node_id, NOTHING).plus(one.resources)
        return reserved

    def used(self, shapes: Mapping[int, Shape]) -> dict[int, Resources]:
        """Return what runs on each incarnation; what is not known of a shape does not count."""
        used: dict[int, Resources] = {}
        for one in self.in_use:
            if one.shape_id in shapes:
                before = used.get(one.incarnation_id, NOTHING)
                used[one.incarnation_id] = before.plus(shapes[one.shape_id].needs, one.times)
        return used

    def free(self, shapes: Mapping[int, Shape]) -> list[Offer]:
        """Return what is left free on each incarnation.

        Where something runs of which nobody can tell what it needs, nothing is free for sure.
        """
        running: defaultdict[int, list[InUse]] = defaultdict(list)
        for one in self.in_use:
            running[one.incarnation_id].append(one)
        used, reserved = self.used(shapes), self.reserved_by_node()
        unknown = {one.incarnation_id for one in self.in_use if one.shape_id not in shapes}
        return [
            _offer(
                one,
                running[one.incarnation_id],
                used.get(one.incarnation_id, NOTHING),
                None if one.incarnation_id in unknown else reserved.get(one.node_id, NOTHING),
            )
            for one in self.offers
        ]


async def read_stock(
    conn: Connection, *, tenants: Collection[int] = (), running: bool = True
) -> Stock:
    """Return what every live node has, what runs there unless it is known, what is reserved.

    What `tenants` have running is told apart from the rest.
    """
    read = await conn.fetchval(SQL["read_stock"], running, list(tenants))
    return msgspec.json.decode(read, type=Stock)


def _offer(
    one: Declared, running: Sequence[InUse], used: Resources, reserved: Resources | None
) -> Offer:
    free, next_end = NOTHING, timedelta(0)
    if reserved is not None:
        free = one.capacity.plus(used, -1).plus(reserved, -1)
        next_end = timedelta(seconds=min((each.next_end for each in running), default=0.0))
    return Offer(
        node_id=one.node_id,
        incarnation_id=one.incarnation_id,
        name=one.name,
        capacity=one.capacity,
        free=free,
        used=used if reserved is not None else NOTHING,
        next_end=next_end,
        labels=one.labels,
        draining=one.draining,
        shortage=one.shortage,
        revision=one.revision,
    )
