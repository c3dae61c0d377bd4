"""Finds out how a waiting task stands against others, for `duly why`."""

import msgspec

from duly.model.shape import Shape
from duly.policy.explanation.competition import Competition
from duly.policy.explanation.facts import Facts
from duly.policy.fairness.turns import user_of
from duly.server.scheduling.standings import ASKED_SHAPE, Standings, read_standings
from duly.store.database import Connection
from duly.store.tasks import subqueues

MAX_SUBQUEUES = 5000
"""With more subqueues, nothing is said of others: it would take too long."""


async def add_competition(
    conn: Connection, facts: Facts, tenant_id: int, user_id: int | None
) -> Facts:
    """Return the facts of a waiting task with the shares that decide about it.

    `user_id` is its user, if the users of its tenant divide the tenant's fair share.
    """
    if facts.function is not None:
        # Workers are no part of what tenants share.
        return facts
    nonempty = await subqueues.read_nonempty(conn)
    tenants = {tenant for tenant, _ in nonempty} | {tenant_id}
    is_alone = len(tenants) == 1 and user_id is None
    if is_alone or len(nonempty) > MAX_SUBQUEUES:
        return facts
    shape = Shape(facts.needs, facts.requires, user_id=user_id)
    standings = await read_standings(
        conn, facts.scheduling, nonempty, tenants, shape, competitor=tenant_id
    )
    if not standings.has_nodes:
        return facts
    return msgspec.structs.replace(
        facts,
        competition=_of_tenants(standings, tenant_id),
        user_competition=_of_users(standings, tenant_id, shape),
    )


def _of_tenants(standings: Standings, tenant_id: int) -> Competition:
    return Competition(
        share=standings.share(tenant_id),
        fair_share=standings.fair_share(tenant_id),
        is_entitled=standings.is_entitled(tenant_id),
        entitled_others=len(standings.entitled_tenants() - {tenant_id}),
    )


def _of_users(standings: Standings, tenant_id: int, shape: Shape) -> Competition | None:
    user = user_of(shape)
    if (users := standings.user_shares(tenant_id)) is None:
        return None
    return Competition(
        share=users.share(user),
        fair_share=users.fair_share(user),
        is_entitled=users.is_entitled(user, standings.shares.fractions(ASKED_SHAPE)),
        entitled_others=len(standings.entitled_users(tenant_id) - {user}),
    )
