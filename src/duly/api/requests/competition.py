"""Finds out how a waiting task stands against those of other tenants, for `duly why`."""

from collections.abc import Mapping

from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.explanation.competition import Competition
from duly.server.scheduling.standings import read_standings
from duly.store.database import Connection
from duly.store.tasks import subqueues

MAX_SUBQUEUES = 5000
"""With more subqueues, nothing is said of other tenants: it would take too long."""


async def read_competition(
    conn: Connection, tenant_id: int, needs: Resources, requires: Mapping[str, str]
) -> Competition | None:
    """Return the shares that decide about a waiting task; None if no other tenant competes."""
    nonempty = (await subqueues.read_nonempty(conn)).keys()
    tenants = {tenant for tenant, _ in nonempty} | {tenant_id}
    if len(tenants) == 1 or len(nonempty) > MAX_SUBQUEUES:
        return None
    shape = Shape(needs, dict(requires))
    standings = await read_standings(conn, nonempty, tenants, shape, competitor=tenant_id)
    if not standings.has_nodes:
        return None
    return Competition(
        share=standings.share(tenant_id),
        fair_share=standings.fair_share(tenant_id),
        is_entitled=standings.is_entitled(tenant_id),
        entitled_tenants=len(standings.entitled_tenants() - {tenant_id}),
    )
