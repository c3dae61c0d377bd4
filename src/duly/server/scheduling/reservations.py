"""Keeps parts of nodes free of tasks, for as long as a tenant wants them.

A reservation counts like a task. What is free is read once the node is locked, and
every lease that was decided before that is refused, so that nothing is given twice.
"""

from datetime import datetime

import msgspec

from duly.errors import Conflict, LimitExceeded, NotFound
from duly.model.allowance import check_resources
from duly.model.amounts import told_resources
from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.model.tenant import Credential
from duly.policy import placement
from duly.policy.explain import over_limit
from duly.policy.limits import NO_KEY_USE, bar
from duly.policy.placement import Ask
from duly.server.herald import Herald
from duly.server.limit_book import in_use
from duly.server.news import News
from duly.server.sequencer import Sequencer
from duly.store import audit_log, leases, overview, quotas, reservations, stock
from duly.store.database import Connection, Database
from duly.store.lanes import Lane
from duly.store.reservations import Reservation

THIS = "the reservation"


class Reservations:
    """Makes, changes and releases reservations."""

    def __init__(self, database: Database, sequencer: Sequencer, herald: Herald) -> None:
        self._database = database
        self._sequencer = sequencer
        self._herald = herald

    async def reserve(
        self,
        credential: Credential,
        resources: Resources,
        *,
        node_id: int | None,
        expires_at: datetime | None,
    ) -> int:
        """Reserve on a node, or wherever it fits best; return the id of the reservation."""
        check_resources(resources, credential.plan, THIS)
        shape, tried = Shape(resources), set[int]()
        while True:
            async with self._database.connection(Lane.GUEST) as conn:
                offers = [
                    offer
                    for offer in await overview.read_offers(conn)
                    if node_id in (None, offer.node_id) and offer.node_id not in tried
                ]
            chosen = _choose(shape, offers)
            made = Reservation(self._sequencer.mint(), chosen, resources, expires_at)
            async with self._database.transaction(Lane.GUEST) as conn:
                await _check_limits(conn, credential, shape)
                if await _has_room(conn, chosen, shape):
                    await self._database.confine(conn, credential.tenant_id)
                    await reservations.add(conn, credential.tenant_id, made)
                    await _record(conn, credential, "create", made.id, made)
                    return made.id
            # Something was leased there meanwhile.
            tried.add(chosen)

    async def change(
        self,
        credential: Credential,
        reservation_id: int,
        resources: Resources | None,
        expires_at: datetime | msgspec.UnsetType | None,
    ) -> None:
        """Change what is reserved, or for how long, on the node where it is."""
        async with self._database.transaction(Lane.GUEST) as conn:
            await quotas.give(conn, credential.tenant_id)
            old = await self._find(conn, credential, reservation_id)
            await reservations.lock_node(conn, old.node_id)
            # Read again: only under the lock does it stay as it is.
            old = await self._find(conn, credential, reservation_id)
            new = Reservation(
                old.id,
                old.node_id,
                old.resources if resources is None else resources,
                old.expires_at if expires_at is msgspec.UNSET else expires_at,
            )
            more = Shape(_growth(old.resources, new.resources))
            if any(amount for _, amount in more.needs.items()):
                check_resources(new.resources, credential.plan, THIS)
                await _check_limits(conn, credential, more)
                if not await _has_room(conn, old.node_id, more):
                    raise Conflict("The node of this reservation has no room for more now.")
            await self._database.confine(conn, credential.tenant_id)
            if not await reservations.change(conn, new):
                raise _unknown(reservation_id)
            await _record(conn, credential, "update", new.id, new)
        self._herald.announce(News(work=True))

    async def release(self, credential: Credential, reservation_id: int) -> None:
        """Give back what is reserved."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            if not await reservations.release(conn, credential.tenant_id, reservation_id):
                raise _unknown(reservation_id)
            await _record(conn, credential, "release", reservation_id)
        self._herald.announce(News(work=True))

    async def _find(
        self, conn: Connection, credential: Credential, reservation_id: int
    ) -> Reservation:
        found = await reservations.find(conn, credential.tenant_id, reservation_id)
        if found is None:
            raise _unknown(reservation_id)
        return found


def _choose(shape: Shape, offers: list[Offer]) -> int:
    nodes = {offer.incarnation_id: offer.node_id for offer in offers}
    placements = placement.place([Ask(0, 0, shape)], offers)
    if placements:
        return nodes[placements[0].incarnation]
    against = {offer.name: ", ".join(placement.reasons_against(shape, offer)) for offer in offers}
    said = "; ".join(f"{name}: {reason}" for name, reason in list(against.items())[:5])
    raise Conflict(f"No node has room for it now ({said or 'none is connected'}).")


async def _check_limits(conn: Connection, credential: Credential, shape: Shape) -> None:
    """Refuse what is more than a tenant may have at once, and let none of it be leased meanwhile.

    The marks are held before anything is counted, and before nodes are locked.
    """
    tenant = credential.tenant_id
    await quotas.give(conn, tenant)
    granted = await quotas.read_limits(conn, [tenant])
    held = await stock.read_stock(conn, tenants=[tenant])
    uses, _ = in_use(held, [tenant], await leases.read_shapes(conn, sorted(held.shapes)))
    limits = msgspec.structs.replace(granted.limits[tenant], max_running=None)
    barred = bar(limits, uses[tenant], NO_KEY_USE, shape)
    if barred is not None:
        said = over_limit(barred).message
        raise LimitExceeded(f"Limit exceeded: {said[:1].lower()}{said[1:]}", limit="max_resources")


async def _has_room(conn: Connection, node_id: int, shape: Shape) -> bool:
    """Lock a node, and say whether it can take `shape` now."""
    if not await reservations.lock_node(conn, node_id):
        return False
    offers = await overview.read_offers(conn)
    return any(placement.fits(shape, offer) for offer in offers if offer.node_id == node_id)


async def _record(
    conn: Connection,
    credential: Credential,
    verb: str,
    reservation_id: int,
    made: Reservation | None = None,
) -> None:
    details: dict[str, object] = {}
    if made is not None:
        details = {
            "node": str(made.node_id),
            "resources": told_resources(made.resources),
            "expires_at": made.expires_at and made.expires_at.isoformat(),
        }
    await audit_log.record(
        conn,
        credential=credential,
        action=f"reservation.{verb}",
        target=str(reservation_id),
        tenant_id=credential.tenant_id,
        details=details,
    )


def _unknown(reservation_id: int) -> NotFound:
    return NotFound(f"There is no reservation {reservation_id}.")


def _growth(old: Resources, new: Resources) -> Resources:
    """Return what `new` has more than `old`, kind by kind."""
    more = {kind: amount for kind, amount in new.plus(old, -1).items() if amount > 0}
    kinds = {kind: amount for kind, amount in more.items() if kind in Resources.__struct_fields__}
    extra = {kind: amount for kind, amount in more.items() if kind not in kinds}
    return Resources(**kinds, extra=extra)
