"""Reserves resources of nodes for a tenant, so that no task is placed on them.

A reservation counts as a running task does. Free capacity is read once the node is locked, and
every lease that was decided before that is refused, so that no capacity is promised twice.
"""

from datetime import datetime

import msgspec

from duly.config import SchedulingSettings
from duly.errors import Conflict, LimitExceeded, NotFound
from duly.model.node import Offer
from duly.model.requests.allowance import check_resources
from duly.model.requests.amounts import resources_to_json
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.model.tenant import Credential
from duly.model.wording import count_of
from duly.policy import placement
from duly.policy.budget.limits import NO_KEY_USAGE, blocking_limit
from duly.policy.explanation.waiting import over_limit
from duly.policy.placement import Ask
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.scheduling.limits_cache import count_usage
from duly.server.scheduling.standings import read_standings
from duly.server.sequencer import Sequencer
from duly.store.accounts import audit_log
from duly.store.attempts import leases, quota_fence
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database
from duly.store.fleet import fleet_snapshot, overview, reservations
from duly.store.fleet.reservations import Reservation
from duly.store.tasks import subqueues

SUBJECT = "the reservation"


class Reservations:
    """Creates, changes and releases reservations."""

    def __init__(
        self,
        database: Database,
        scheduling: SchedulingSettings,
        sequencer: Sequencer,
        server_bus: ServerBus,
    ) -> None:
        self._database = database
        self._scheduling = scheduling
        self._sequencer = sequencer
        self._server_bus = server_bus

    async def reserve(
        self,
        credential: Credential,
        resources: Resources,
        *,
        node_id: int | None,
        expires_at: datetime | None,
    ) -> int:
        """Reserve on the given node, or on the one that fits best; return the reservation's id."""
        check_resources(resources, credential.plan, SUBJECT)
        shape, tried = Shape(resources), set[int]()
        while True:
            async with self._database.connection(ConnectionClass.CLIENT) as conn:
                offers = [
                    offer
                    for offer in await overview.read_offers(conn)
                    if offer.worker is None
                    and node_id in (None, offer.node_id)
                    and offer.node_id not in tried
                ]
                await _check_fair_share(conn, self._scheduling, credential.tenant_id, shape)
            chosen = _choose(shape, offers)
            reservation = Reservation(self._sequencer.mint(), chosen, resources, expires_at)
            async with self._database.transaction(ConnectionClass.CLIENT) as conn:
                await _check_limits(conn, credential, shape)
                if await _lock_and_check_fit(conn, chosen, shape):
                    await self._database.confine(conn, credential.tenant_id)
                    await reservations.add(conn, credential.tenant_id, reservation)
                    await _audit(conn, credential, "create", reservation.id, reservation)
                    return reservation.id
            # Another lease or reservation was faster: try the other nodes.
            tried.add(chosen)

    async def change(
        self,
        credential: Credential,
        reservation_id: int,
        resources: Resources | None,
        expires_at: datetime | msgspec.UnsetType | None,
    ) -> None:
        """Change the resources of a reservation, or when it expires; it stays on its node."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            await quota_fence.advance(conn, credential.tenant_id)
            old = await self._find(conn, credential, reservation_id)
            await reservations.lock_node(conn, old.node_id)
            # Read again under the lock, which keeps others from changing it.
            old = await self._find(conn, credential, reservation_id)
            new = Reservation(
                old.id,
                old.node_id,
                old.resources if resources is None else resources,
                old.expires_at if expires_at is msgspec.UNSET else expires_at,
            )
            growth = Shape(_growth(old.resources, new.resources))
            if any(amount for _, amount in growth.needs.items()):
                check_resources(new.resources, credential.plan, SUBJECT)
                await _check_limits(conn, credential, growth)
                await _check_fair_share(conn, self._scheduling, credential.tenant_id, growth)
                if not await _lock_and_check_fit(conn, old.node_id, growth):
                    raise Conflict(
                        "The node of the reservation has too little free capacity for this change."
                    )
            await self._database.confine(conn, credential.tenant_id)
            if not await reservations.change(conn, new):
                raise _not_found(reservation_id)
            await _audit(conn, credential, "update", new.id, new)
        self._server_bus.broadcast(Hint(work=True))

    async def release(self, credential: Credential, reservation_id: int) -> None:
        """Release a reservation."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            if not await reservations.release(conn, credential.tenant_id, reservation_id):
                raise _not_found(reservation_id)
            await _audit(conn, credential, "release", reservation_id)
        self._server_bus.broadcast(Hint(work=True))

    async def _find(
        self, conn: Connection, credential: Credential, reservation_id: int
    ) -> Reservation:
        reservation = await reservations.find(conn, credential.tenant_id, reservation_id)
        if reservation is None:
            raise _not_found(reservation_id)
        return reservation


def _choose(shape: Shape, offers: list[Offer]) -> int:
    nodes = {offer.incarnation_id: offer.node_id for offer in offers}
    placements = placement.place([Ask(0, 0, shape)], offers)
    if placements:
        return nodes[placements[0].incarnation]
    reasons = {offer.name: ", ".join(placement.reasons_against(shape, offer)) for offer in offers}
    details = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:5])
    raise Conflict(f"No node can take this reservation now ({details or 'none is connected'}).")


async def _check_limits(conn: Connection, credential: Credential, shape: Shape) -> None:
    """Refuse a reservation beyond the tenant's limits, and refuse leases decided before it.

    The quota fence is raised before usage is counted, and before nodes are locked.
    """
    tenant = credential.tenant_id
    await quota_fence.advance(conn, tenant)
    granted = await quota_fence.read_limits(conn, [tenant])
    snapshot = await fleet_snapshot.read_snapshot(conn, tenants=[tenant])
    shapes = await leases.read_shapes(conn, sorted(snapshot.shapes))
    uses, _ = count_usage(snapshot, [tenant], shapes)
    limits = msgspec.structs.replace(granted.limits[tenant], max_running=None)
    barred = blocking_limit(limits, uses[tenant], NO_KEY_USAGE, shape)
    if barred is not None:
        message = over_limit(barred).message
        raise LimitExceeded(
            f"Limit exceeded: {message[:1].lower()}{message[1:]}", limit="max_resources"
        )


async def _check_fair_share(
    conn: Connection, scheduling: SchedulingSettings, tenant: int, shape: Shape
) -> None:
    """Refuse a reservation beyond the tenant's fair share while others wait for theirs."""
    nonempty = await subqueues.read_nonempty(conn)
    tenants = {other for other, _ in nonempty}
    if tenants <= {tenant}:
        return
    standings = await read_standings(
        conn, scheduling, nonempty, tenants | {tenant}, shape, competitor=tenant
    )
    others = standings.entitled_tenants() - {tenant}
    if others and not standings.is_entitled(tenant):
        raise Conflict(
            f"With this reservation your tenant would hold more than its fair share of the nodes, "
            f"which is {100 * standings.fair_share(tenant):.0f} %, while tasks of "
            f"{count_of(len(others), 'other tenant', 'other tenants')} wait for theirs. Reserve "
            "less, or try again when they have started."
        )


async def _lock_and_check_fit(conn: Connection, node_id: int, shape: Shape) -> bool:
    """Lock a node, and return whether `shape` fits on it now."""
    if not await reservations.lock_node(conn, node_id):
        return False
    offers = await overview.read_offers(conn)
    return any(placement.fits(shape, offer) for offer in offers if offer.node_id == node_id)


async def _audit(
    conn: Connection,
    credential: Credential,
    verb: str,
    reservation_id: int,
    reservation: Reservation | None = None,
) -> None:
    details: dict[str, object] = {}
    if reservation is not None:
        details = {
            "node": str(reservation.node_id),
            "resources": resources_to_json(reservation.resources),
            "expires_at": reservation.expires_at and reservation.expires_at.isoformat(),
        }
    await audit_log.record(
        conn,
        credential=credential,
        action=f"reservation.{verb}",
        target=str(reservation_id),
        tenant_id=credential.tenant_id,
        details=details,
    )


def _not_found(reservation_id: int) -> NotFound:
    return NotFound(f"There is no reservation {str(reservation_id)!r}.", kind="reservation")


def _growth(old: Resources, new: Resources) -> Resources:
    """Return by how much `new` exceeds `old`, for each kind of resource."""
    more = {kind: amount for kind, amount in new.plus(old, -1).items() if amount > 0}
    kinds = {kind: amount for kind, amount in more.items() if kind in Resources.__struct_fields__}
    extra = {kind: amount for kind, amount in more.items() if kind not in kinds}
    return Resources(**kinds, extra=extra)
