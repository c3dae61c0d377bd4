"""Edges: which tasks wait for which, and how their ends are told.

Whoever makes an edge locks the upstream until the commit and marks it; whoever ends a
marked task leaves a note (a trigger does); the leader goes through the notes and counts
the edges down. So ending a task costs the same whoever waits for it.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from duly.model.graph import Condition, Dependency
from duly.model.task import Status
from duly.model.tenant import Credential
from duly.store.database import Connection, array_text, load_statements
from duly.store.servers import SCHEDULING, Term

SQL = load_statements("edges.sql")


class NewEdge(msgspec.Struct, frozen=True, gc=False):
    """An edge on its way into the store."""

    dependant: int
    upstream: int
    condition: Condition
    by_ref: bool = False
    """Whether the dependant calls the upstream by its ref."""


class NewGraph(msgspec.Struct, frozen=True):
    """Tasks on their way into the store as a whole."""

    id: int
    name: str | None


class StoredGraph(msgspec.Struct, frozen=True):
    """A graph whose tasks are stored, and whose it is."""

    graph: NewGraph
    tenant_id: int
    user_id: int | None
    tasks: Sequence[int]


class GraphTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a part of a graph."""

    id: int
    ref: str | None
    name: str | None
    status: Status
    depends_on: list[Dependency]


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """A graph, where its tasks are, and some of them."""

    id: int
    name: str | None
    user: str | None
    submitted_at: datetime
    counts: dict[Status, int]
    tasks: list[GraphTask]
    size: int


class Settled(msgspec.Struct, frozen=True):
    """What became of tasks whose upstreams have ended."""

    waiting: list[tuple[tuple[int, int], datetime]]
    """Those that wait for their turn: (tenant, shape) and start_by."""
    scheduled: int
    """How many wait for a time of their own."""
    cancelled: list[int]
    """Those that can never run, and have ended for it."""
    last: int | None
    """If there are more: the tenant whose turn was the last."""

    @property
    def has_more(self) -> bool:
        """Say whether there are more ends to tell of."""
        return self.last is not None


async def insert(conn: Connection, tenant_id: int, edges: Sequence[NewEdge]) -> None:
    """Store edges between tasks that are stored in the same transaction."""
    await conn.execute(SQL["insert_edges"], tenant_id, *_columns(edges))


async def attach(conn: Connection, tenant_id: int, edges: Sequence[NewEdge]) -> list[int]:
    """Let new tasks depend on older ones; return those that the tenant does not have.

    Call it last before the commit: until then none of these upstreams can start or end.
    """
    rows = await conn.fetch(SQL["attach_edges"], tenant_id, *_columns(edges))
    return [row["unknown_id"] for row in rows]


async def read_awaited(conn: Connection, tenant_id: int, task_id: int, *, limit: int) -> list[int]:
    """Return some of the tasks that a task waits for and that have not ended."""
    rows = await conn.fetch(SQL["read_awaited"], tenant_id, task_id, limit)
    return [row["id"] for row in rows]


async def settle(
    conn: Connection, term: Term, *, limit: int, share: int, after: int = 0
) -> Settled:
    """Tell dependants that tasks have ended, going through about `limit` edges.

    Tenants have turns of `share` edges, beginning with the one that comes after `after`.
    """
    rows = await conn.fetch(
        SQL["settle_edges"], SCHEDULING, term.number, term.server, limit, share, after
    )
    return Settled(
        [
            ((row["tenant_id"], row["shape_id"]), row["start_by"])
            for row in rows
            if row["status"] == Status.WAITING
        ],
        sum(row["status"] == Status.SCHEDULED for row in rows),
        [row["id"] for row in rows if row["status"] == Status.CANCELLED],
        next((row["tenant_id"] for row in rows if row["id"] is None), None),
    )


async def insert_graph(
    conn: Connection, graph: NewGraph, credential: Credential, tasks: Sequence[int]
) -> None:
    """Store which tasks were submitted as a whole."""
    await conn.execute(
        SQL["insert_graph"],
        graph.id,
        credential.tenant_id,
        credential.user_id,
        graph.name,
        list(tasks),
    )


async def insert_graphs(conn: Connection, graphs: Sequence[StoredGraph]) -> None:
    """Store which tasks were submitted as wholes, for any tenants."""
    await conn.execute(
        SQL["insert_graphs"],
        [one.graph.id for one in graphs],
        [one.tenant_id for one in graphs],
        [one.user_id for one in graphs],
        [one.graph.name for one in graphs],
        [array_text(one.tasks) for one in graphs],
    )


async def read_graph_of(conn: Connection, tenant_id: int, task_id: int) -> int | None:
    """Return the graph with which a task was submitted, if it was with one."""
    found: int | None = await conn.fetchval(SQL["read_graph_of"], tenant_id, task_id)
    return found


async def read_graph(
    conn: Connection, tenant_id: int, graph_id: int, *, limit: int
) -> GraphView | None:
    """Return a graph with its first `limit` tasks; None when the tenant has no such graph."""
    row = await conn.fetchrow(SQL["read_graph"], tenant_id, graph_id)
    if row is None:
        return None
    ids = row["task_ids"]
    return GraphView(
        id=graph_id,
        name=row["name"],
        user=row["user"],
        submitted_at=row["submitted_at"],
        counts={Status(one): count for one, count in (row["counts"] or {}).items()},
        tasks=await read_tasks(conn, tenant_id, ids[:limit]),
        size=len(ids),
    )


async def read_task_ids(conn: Connection, tenant_id: int, graph_id: int) -> list[int] | None:
    """Return the tasks of a graph; None when the tenant has no such graph."""
    ids: list[int] | None = await conn.fetchval(SQL["read_task_ids"], tenant_id, graph_id)
    return ids


async def read_parts(
    conn: Connection, tenant_id: int, graphs: Sequence[int]
) -> dict[int, list[int]]:
    """Return the tasks of several graphs of a tenant, by graph."""
    rows = await conn.fetch(SQL["read_parts"], tenant_id, list(graphs))
    return {row["id"]: row["task_ids"] for row in rows}


async def read_tasks(conn: Connection, tenant_id: int, ids: Sequence[int]) -> list[GraphTask]:
    """Return tasks with what they depend on, in the order of `ids`."""
    rows = await conn.fetch(SQL["read_graph_tasks"], tenant_id, list(ids))
    return [
        GraphTask(
            id=row["id"],
            ref=row["ref"],
            name=row["name"],
            status=Status(row["status"]),
            depends_on=msgspec.convert(row["depends_on"] or [], list[Dependency]),
        )
        for row in rows
    ]


async def read_around(
    conn: Connection, tenant_id: int, task_id: int, *, limit: int
) -> dict[str, list[int]]:
    """Return what a task depends on (`upstream`), and what depends on it (`dependant`), by any way.

    Those that do so themselves are also `direct`. Up to `limit` of each.
    """
    found: dict[str, list[int]] = {"upstream": [], "dependant": [], "direct": []}
    for row in await conn.fetch(SQL["read_around"], tenant_id, task_id, limit):
        found[row["kind"]].append(row["id"])
    return found


def _columns(edges: Sequence[NewEdge]) -> tuple[list[int], list[int], list[Condition]]:
    return (
        [edge.dependant for edge in edges],
        [edge.upstream for edge in edges],
        [edge.condition for edge in edges],
    )
