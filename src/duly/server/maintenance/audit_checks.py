"""The checks of one pass of the self-audit, each in pages of a bounded size.

Live tasks, history, idempotency keys and dead letters are paged through by primary key. Nodes
and the leader are few and take one page. Whether a subqueue is stuck, or a node overcommitted,
is decided by the same functions that place tasks.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly.config import Settings
from duly.model.drift import DriftKind, Finding
from duly.model.limits import UNLIMITED
from duly.model.resources import NO_RESOURCES
from duly.policy import placement
from duly.policy.audit import classify_overuse
from duly.policy.budget.limits import Budget
from duly.server.maintenance.usage_recount import UsageRecount, VerifiedDay
from duly.server.scheduling.limits_cache import count_usage, queue_room
from duly.store.attempts import leases, quota_fence
from duly.store.database import Connection
from duly.store.fleet import fleet_snapshot
from duly.store.maintenance import audit
from duly.store.maintenance.audit import AuditBatch, Cursor

Check = Callable[[Connection, Cursor], Awaitable[AuditBatch]]
"""Checks the page of rows after a cursor, and returns the findings and the next cursor."""

SUBQUEUES_PER_PAGE = 300
BEFORE_FIRST_ID = (-1,)
BEFORE_FIRST_SUBQUEUE = (-1, -1)
BEFORE_FIRST_KEY = (-1, "")


class AuditChecks:
    """The checks of the audit, each with the cursor at which it begins."""

    def __init__(self, settings: Settings, late: timedelta) -> None:
        self._settings = settings
        self._late = late
        self._verified_day = VerifiedDay()

    def live(self) -> list[tuple[Check, Cursor]]:
        """Return the checks of live tasks, nodes and the leader."""
        return [
            (self._check_cluster, ()),
            (self._check_subqueues, BEFORE_FIRST_SUBQUEUE),
            (self._check_live, BEFORE_FIRST_ID),
        ]

    def history(self) -> list[tuple[Check, Cursor]]:
        """Return the checks of usage, ended tasks, idempotency keys and dead letters."""
        return [
            (UsageRecount(self._verified_day).check, ()),
            (self._check_tasks, BEFORE_FIRST_ID),
            (self._check_keys, BEFORE_FIRST_KEY),
            (self._check_dead_letters, BEFORE_FIRST_ID),
        ]

    async def _check_cluster(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        findings = await audit.examine_cluster(conn, late=self._late)
        nodes = await audit.read_declared(conn)
        fleet = await fleet_snapshot.read_snapshot(conn)
        used = fleet.used(await leases.read_shapes(conn, sorted(fleet.shapes)))
        reserved = fleet.reserved_by_node()
        for node in nodes:
            total = used.get(node.incarnation_id, NO_RESOURCES).plus(
                reserved.get(node.node_id, NO_RESOURCES)
            )
            kind = classify_overuse(node.declared, node.allowed, total)
            if kind is not None:
                findings.append(Finding(kind, node.node_id, str(node.incarnation_id)))
        return AuditBatch(findings, len(nodes), None)

    async def _check_subqueues(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        heads, last = await audit.read_subqueue_heads(
            conn, cursor, SUBQUEUES_PER_PAGE, late=self._late
        )
        late = [head for head in heads if head.is_late]
        if not late:
            return AuditBatch([], len(heads), last)
        tenants = {head.tenant_id for head in late}
        granted = await quota_fence.read_limits(conn, tenants)
        fleet = await fleet_snapshot.read_snapshot(conn, tenants=tenants)
        late_shapes = {head.shape_id for head in late}
        shapes = await leases.read_shapes(conn, sorted(late_shapes | fleet.shapes))
        limits = dict.fromkeys(tenants, UNLIMITED) | granted.limits
        budget = Budget(limits, *count_usage(fleet, tenants, shapes), shapes)
        offers = fleet.free(shapes)
        room = queue_room(granted.queues, fleet, offers, shapes)
        stuck = [
            Finding(DriftKind.STUCK_SUBQUEUE, head.id, str(head.attempt))
            for head in late
            if head.shape_id in shapes
            and budget.room(head.tenant_id, head.shape_id)
            and room.of(head.shape_id)
            and any(placement.fits(shapes[head.shape_id], offer) for offer in offers)
        ]
        return AuditBatch(stuck, len(heads), last)

    async def _check_live(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        grace = self._settings.execution.grace
        batch = self._settings.audit.batch
        return await audit.walk_live(conn, cursor, batch, late=self._late, grace=grace)

    async def _check_tasks(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        return await audit.walk_tasks(conn, cursor, self._settings.audit.batch)

    async def _check_keys(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        history = self._settings.retention.history
        return await audit.walk_keys(conn, cursor, self._settings.audit.batch, history=history)

    async def _check_dead_letters(self, conn: Connection, cursor: Cursor) -> AuditBatch:
        return await audit.walk_dead_letters(conn, cursor, self._settings.audit.batch)
