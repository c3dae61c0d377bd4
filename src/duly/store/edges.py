"""Edges: which tasks wait for which, and how their ends are told.

Whoever makes an edge locks the upstream until the commit and marks it; whoever ends a
marked task leaves a note (a trigger does); the leader goes through the notes and counts
the edges down. So ending a task costs the same whoever waits for it.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from duly.model.graph import Condition
from duly.model.task import Status
from duly.store.database import Connection, load_statements
from duly.store.servers import SCHEDULING, Term

SQL = load_statements("edges.sql")


class NewEdge(msgspec.Struct, frozen=True):
    """An edge on its way into the store."""

    dependant: int
    upstream: int
    condition: Condition


class Settled(msgspec.Struct, frozen=True):
    """What became of tasks whose upstreams have ended."""

    waiting: list[tuple[tuple[int, int], datetime]]
    """Those that wait for their turn: (tenant, shape) and start_by."""
    scheduled: int
    """How many wait for a time of their own."""
    cancelled: list[int]
    """Those that can never run, and have ended for it."""
    has_more: bool


async def insert(conn: Connection, tenant_id: int, edges: Sequence[NewEdge]) -> None:
    """Store edges between tasks that are stored in the same transaction."""
    await conn.execute(SQL["insert_edges"], tenant_id, *_columns(edges))


async def attach(conn: Connection, tenant_id: int, edges: Sequence[NewEdge]) -> list[int]:
    """Let new tasks depend on older ones; return those that the tenant does not have.

    Call it last before the commit: until then none of these upstreams can start or end.
    """
    rows = await conn.fetch(SQL["attach_edges"], tenant_id, *_columns(edges))
    return [row["unknown_id"] for row in rows]


async def settle(conn: Connection, term: Term, *, limit: int) -> Settled:
    """Tell dependants that tasks have ended, going through about `limit` edges."""
    rows = await conn.fetch(SQL["settle_edges"], SCHEDULING, term.number, term.server, limit)
    return Settled(
        [((row[1], row[2]), row[4]) for row in rows if row[3] == Status.WAITING],
        sum(row[3] == Status.SCHEDULED for row in rows),
        [row[0] for row in rows if row[3] == Status.CANCELLED],
        any(row[0] is None for row in rows),
    )


async def insert_graph(
    conn: Connection,
    graph_id: int,
    tenant_id: int,
    user_id: int | None,
    name: str | None,
    tasks: Sequence[int],
) -> None:
    """Store which tasks were submitted as a whole."""
    await conn.execute(SQL["insert_graph"], graph_id, tenant_id, user_id, name, list(tasks))


def _columns(edges: Sequence[NewEdge]) -> tuple[list[int], list[int], list[Condition]]:
    return (
        [edge.dependant for edge in edges],
        [edge.upstream for edge in edges],
        [edge.condition for edge in edges],
    )
