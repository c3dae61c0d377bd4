"""What one round of the self-audit looks at, in pieces of a bounded size.

Live tasks, history, keys and dead letters are gone through by their keys. Nodes and the
leader are few. Whether a line is stuck, and whether a node has given away more than it
has, is decided by the same functions that place tasks.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from duly.config import Settings
from duly.model.drift import Finding, Kind
from duly.model.limits import UNLIMITED
from duly.model.resources import NOTHING
from duly.policy import placement
from duly.policy.audit import overuse
from duly.policy.limits import Budget
from duly.server.limit_book import in_use
from duly.server.recount import Balanced, Recount
from duly.store import audit, leases, quotas, stock
from duly.store.audit import Piece, Place
from duly.store.database import Connection

Look = Callable[[Connection, Place], Awaitable[Piece]]
"""Looks at the piece above a place."""

LINES = 300
LOWEST = (-1,)
LOWEST_PAIR = (-1, -1)
LOWEST_KEY = (-1, "")


class Inspections:
    """The walks of the audit, each with the place at which it begins."""

    def __init__(self, settings: Settings, late: timedelta) -> None:
        self._settings = settings
        self._late = late
        self._balanced = Balanced()

    def live(self) -> list[tuple[Look, Place]]:
        """Return what is to be gone through to know that what lives is sound."""
        return [(self._cluster, ()), (self._lines, LOWEST_PAIR), (self._live, LOWEST)]

    def history(self) -> list[tuple[Look, Place]]:
        """Return what is to be gone through to know that what is remembered is sound."""
        return [
            (Recount(self._balanced).look, ()),
            (self._tasks, LOWEST),
            (self._keys, LOWEST_KEY),
            (self._letters, LOWEST),
        ]

    async def _cluster(self, conn: Connection, above: Place) -> Piece:
        findings = await audit.examine_cluster(conn, late=self._late)
        nodes = await audit.read_declared(conn)
        held = await stock.read_stock(conn)
        used = held.used(await leases.read_shapes(conn, sorted(held.shapes)))
        reserved = held.reserved_by_node()
        for node in nodes:
            total = used.get(node.incarnation_id, NOTHING).plus(reserved.get(node.node_id, NOTHING))
            kind = overuse(node.declared, node.allowed, total)
            if kind is not None:
                findings.append(Finding(kind, node.node_id, str(node.incarnation_id)))
        return Piece(findings, len(nodes), None)

    async def _lines(self, conn: Connection, above: Place) -> Piece:
        lines, last = await audit.read_lines(conn, above, LINES, late=self._late)
        late = [line for line in lines if line.is_late]
        if not late:
            return Piece([], len(lines), last)
        tenants = {line.tenant_id for line in late}
        granted = await quotas.read_limits(conn, tenants)
        held = await stock.read_stock(conn, tenants=tenants)
        asked = {line.shape_id for line in late}
        shapes = await leases.read_shapes(conn, sorted(asked | held.shapes))
        limits = dict.fromkeys(tenants, UNLIMITED) | granted.limits
        budget = Budget(limits, *in_use(held, tenants, shapes), shapes)
        offers = held.free(shapes)
        stuck = [
            Finding(Kind.STUCK_LINE, line.id, str(line.attempt))
            for line in late
            if line.shape_id in shapes
            and budget.room(line.tenant_id, line.shape_id)
            and any(placement.fits(shapes[line.shape_id], offer) for offer in offers)
        ]
        return Piece(stuck, len(lines), last)

    async def _live(self, conn: Connection, above: Place) -> Piece:
        grace = self._settings.execution.grace
        batch = self._settings.audit.batch
        return await audit.walk_live(conn, above, batch, late=self._late, grace=grace)

    async def _tasks(self, conn: Connection, above: Place) -> Piece:
        return await audit.walk_tasks(conn, above, self._settings.audit.batch)

    async def _keys(self, conn: Connection, above: Place) -> Piece:
        history = self._settings.retention.history
        return await audit.walk_keys(conn, above, self._settings.audit.batch, history=history)

    async def _letters(self, conn: Connection, above: Place) -> Piece:
        return await audit.walk_letters(conn, above, self._settings.audit.batch)
