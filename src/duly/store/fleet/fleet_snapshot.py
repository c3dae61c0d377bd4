"""A consistent snapshot of the nodes' capacity and usage, the input of a scheduling round.

One statement reads all of it. A lease names the revision of the incarnation that it was decided
on, and every reservation made before that revision is part of the snapshot.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.model.node import Offer, Worker
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.shape import Shape
from duly.store.database import Connection, load_statements

SQL = load_statements("fleet_snapshot.sql")


class LiveIncarnation(msgspec.Struct, frozen=True):
    """A live incarnation with its capacity."""

    incarnation_id: int
    node_id: int
    name: str
    capacity: Resources
    labels: dict[str, str]
    draining: bool
    revision: int
    shortage: str | None = None
    tenant_id: int | None = None
    """The tenant of a worker."""


class InUse(msgspec.Struct, frozen=True):
    """The number of attempts of a shape on an incarnation, and when the first must have ended."""

    incarnation_id: int
    shape_id: int
    times: int
    next_end: float
    """Seconds from now."""
    tenant_id: int | None = None
    """Set for the tenants whose attempts were asked for separately."""


class Reserved(msgspec.Struct, frozen=True):
    """A part of a node that is kept free of tasks."""

    node_id: int
    resources: Resources
    tenant_id: int


class QuotaFence(msgspec.Struct, frozen=True):
    """The state of limits and grants when usage was counted; a lease must present both."""

    revision: int
    given: int


class DownstreamRevision(msgspec.Struct, frozen=True):
    """How often limits of downstreams were defined, and how often throttling lowered them."""

    defined: int = 0
    adapted: int = 0


class FleetSnapshot(msgspec.Struct, frozen=True):
    """Capacity, usage and reservations at one moment."""

    offers: list[LiveIncarnation]
    in_use: list[InUse]
    reserved: list[Reserved]
    fence: QuotaFence
    now: datetime
    downstreams: DownstreamRevision = DownstreamRevision()
    workers: Mapping[int, Worker] = {}
    """The incarnations that are workers."""

    @property
    def shapes(self) -> set[int]:
        """Return the shapes of running attempts."""
        return {use.shape_id for use in self.in_use}

    def reserved_by_node(self) -> dict[int, Resources]:
        """Return the reserved resources of each node with reservations."""
        totals: dict[int, Resources] = {}
        for part in self.reserved:
            totals[part.node_id] = totals.get(part.node_id, NO_RESOURCES).plus(part.resources)
        return totals

    def used(self, shapes: Mapping[int, Shape]) -> dict[int, Resources]:
        """Return the resources in use on each incarnation; unknown shapes are not counted."""
        used: dict[int, Resources] = {}
        for use in self.in_use:
            if use.shape_id in shapes:
                before = used.get(use.incarnation_id, NO_RESOURCES)
                used[use.incarnation_id] = before.plus(shapes[use.shape_id].needs, use.times)
        return used

    def free(self, shapes: Mapping[int, Shape]) -> list[Offer]:
        """Return the free resources of each incarnation.

        An incarnation that runs an attempt of an unknown shape is assumed to have nothing free.
        """
        running: defaultdict[int, list[InUse]] = defaultdict(list)
        for use in self.in_use:
            running[use.incarnation_id].append(use)
        used, reserved = self.used(shapes), self.reserved_by_node()
        unknown = {use.incarnation_id for use in self.in_use if use.shape_id not in shapes}
        return [
            _offer(
                live,
                running[live.incarnation_id],
                used.get(live.incarnation_id, NO_RESOURCES),
                None
                if live.incarnation_id in unknown
                else reserved.get(live.node_id, NO_RESOURCES),
                self.workers.get(live.incarnation_id),
            )
            for live in self.offers
        ]


async def read_snapshot(
    conn: Connection,
    *,
    tenants: Collection[int] | None = (),
    running: bool = True,
    workers: Mapping[int, Worker] = {},
) -> FleetSnapshot:
    """Return the capacity of every live node, the running attempts if wanted, and reservations.

    Running attempts of `tenants` are listed separately by tenant; None means every tenant. The
    functions of `workers`, by incarnation, are known already and not read again.
    """
    listed = None if tenants is None else list(tenants)
    text = await conn.fetchval(SQL["read_snapshot"], running, listed)
    snapshot = msgspec.json.decode(text, type=FleetSnapshot)
    owners = {
        live.incarnation_id: live.tenant_id
        for live in snapshot.offers
        if live.tenant_id is not None
    }
    if not owners:
        return snapshot
    found = {id_: workers[id_] for id_ in owners.keys() & workers.keys()}
    if unknown := sorted(owners.keys() - found.keys()):
        for row in await conn.fetch(SQL["read_functions"], unknown):
            found[row["id"]] = Worker(owners[row["id"]], frozenset(row["functions"]))
    return msgspec.structs.replace(snapshot, workers=found)


def _offer(
    incarnation: LiveIncarnation,
    running: Sequence[InUse],
    used: Resources,
    reserved: Resources | None,
    worker: Worker | None,
) -> Offer:
    free, next_end = NO_RESOURCES, timedelta(0)
    if reserved is not None:
        free = incarnation.capacity.plus(used, -1).plus(reserved, -1)
        next_end = timedelta(seconds=min((each.next_end for each in running), default=0.0))
    return Offer(
        node_id=incarnation.node_id,
        incarnation_id=incarnation.incarnation_id,
        name=incarnation.name,
        capacity=incarnation.capacity,
        free=free,
        used=used if reserved is not None else NO_RESOURCES,
        reserved=reserved or NO_RESOURCES,
        next_end=next_end,
        labels=incarnation.labels,
        draining=incarnation.draining,
        shortage=incarnation.shortage,
        revision=incarnation.revision,
        worker=worker,
    )
