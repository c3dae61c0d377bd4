"""Dependencies between tasks (edges), and the resolution of ended upstreams.

Adding an edge locks the upstream until the commit and flags it as having dependants. When a
flagged task ends, a trigger inserts a row into `ended_upstreams`; the leader processes these rows
and decrements the dependants' counters. So ending a task costs the same however many tasks wait
for it.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from duly.model.graph import Condition, Dependency
from duly.model.task import Status
from duly.model.tenant import Credential
from duly.store.database import Connection, array_literal, load_statements
from duly.store.fleet.servers import SCHEDULING, Term

SQL = load_statements("edges.sql")


class NewEdge(msgspec.Struct, frozen=True, gc=False):
    """An edge to be stored."""

    dependant: int
    upstream: int
    condition: Condition
    by_ref: bool = False
    """Whether the dependant refers to the upstream by its ref."""


class NewGraph(msgspec.Struct, frozen=True):
    """A graph to be stored."""

    id: int
    name: str | None


class StoredGraph(msgspec.Struct, frozen=True):
    """A graph whose tasks are stored, with its owner."""

    graph: NewGraph
    tenant_id: int
    user_id: int | None
    tasks: Sequence[int]


class GraphTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task within a graph."""

    id: int
    ref: str | None
    name: str | None
    status: Status
    depends_on: list[Dependency]


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """A graph with the counts of its tasks by status, and the first of its tasks."""

    id: int
    name: str | None
    user: str | None
    submitted_at: datetime
    counts: dict[Status, int]
    tasks: list[GraphTask]
    size: int


class ResolvedEdges(msgspec.Struct, frozen=True):
    """The tasks that were unblocked or cancelled because their upstreams have ended."""

    waiting: list[tuple[tuple[int, int], datetime]]
    """Tasks that are ready: (tenant, shape) and start_by."""
    scheduled: int
    """How many tasks wait for their `run_at`."""
    cancelled: list[int]
    """Tasks whose condition can no longer be met."""
    last: int | None
    """The round-robin cursor if there are more: the tenant served last."""

    @property
    def has_more(self) -> bool:
        """Return True if there are more ended upstreams to process."""
        return self.last is not None


async def insert(conn: Connection, tenant_id: int, edges: Sequence[NewEdge]) -> None:
    """Store edges between tasks stored in the same transaction."""
    await conn.execute(SQL["insert_edges"], tenant_id, *_columns(edges))


async def attach(conn: Connection, tenant_id: int, edges: Sequence[NewEdge]) -> list[int]:
    """Add dependencies of new tasks on existing ones; return the upstreams that do not exist.

    Call it last before the commit: the upstreams stay locked and can neither start nor end.
    """
    rows = await conn.fetch(SQL["attach_edges"], tenant_id, *_columns(edges))
    return [row["unknown_id"] for row in rows]


async def read_awaited(conn: Connection, tenant_id: int, task_id: int, *, limit: int) -> list[int]:
    """Return up to `limit` live upstreams that a task waits for."""
    rows = await conn.fetch(SQL["read_awaited"], tenant_id, task_id, limit)
    return [row["id"] for row in rows]


async def resolve(
    conn: Connection, term: Term, *, limit: int, share: int, after: int = 0
) -> ResolvedEdges:
    """Resolve the edges of ended upstreams, about `limit` of them.

    Tenants are served round-robin, `share` edges at a time, starting after the tenant `after`.
    """
    rows = await conn.fetch(
        SQL["resolve_edges"], SCHEDULING, term.number, term.server, limit, share, after
    )
    return ResolvedEdges(
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
    """Store a graph and its tasks' ids."""
    await conn.execute(
        SQL["insert_graph"],
        graph.id,
        credential.tenant_id,
        credential.user_id,
        graph.name,
        list(tasks),
    )


async def insert_graphs(conn: Connection, graphs: Sequence[StoredGraph]) -> None:
    """Store graphs of any tenants."""
    await conn.execute(
        SQL["insert_graphs"],
        [stored.graph.id for stored in graphs],
        [stored.tenant_id for stored in graphs],
        [stored.user_id for stored in graphs],
        [stored.graph.name for stored in graphs],
        [array_literal(stored.tasks) for stored in graphs],
    )


async def read_graph_of(conn: Connection, tenant_id: int, task_id: int) -> int | None:
    """Return the graph that a task belongs to, if any."""
    graph_id: int | None = await conn.fetchval(SQL["read_graph_of"], tenant_id, task_id)
    return graph_id


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
        counts={Status(status): count for status, count in (row["counts"] or {}).items()},
        tasks=await read_tasks(conn, tenant_id, ids[:limit]),
        size=len(ids),
    )


async def graphs_by_name(
    conn: Connection, tenant_id: int, name: str, *, limit: int
) -> dict[int, bool]:
    """Return a tenant's graphs of a name, newest first, each with whether it is live."""
    rows = await conn.fetch(SQL["graphs_by_name"], tenant_id, name, limit)
    return {row["id"]: row["is_live"] for row in rows}


async def read_task_ids(conn: Connection, tenant_id: int, graph_id: int) -> list[int] | None:
    """Return the tasks of a graph; None when the tenant has no such graph."""
    ids: list[int] | None = await conn.fetchval(SQL["read_task_ids"], tenant_id, graph_id)
    return ids


async def read_tasks_of_graphs(
    conn: Connection, tenant_id: int, graphs: Sequence[int]
) -> dict[int, list[int]]:
    """Return the tasks of several graphs of a tenant, by graph."""
    rows = await conn.fetch(SQL["read_tasks_of_graphs"], tenant_id, list(graphs))
    return {row["id"]: row["task_ids"] for row in rows}


async def read_tasks(conn: Connection, tenant_id: int, ids: Sequence[int]) -> list[GraphTask]:
    """Return tasks with their dependencies, in the order of `ids`."""
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


async def read_neighbours(
    conn: Connection, tenant_id: int, task_id: int, *, limit: int
) -> dict[str, list[int]]:
    """Return a task's transitive upstreams (`upstream`) and downstream tasks (`dependant`).

    Immediate neighbours are also in `direct`. Up to `limit` of each kind.
    """
    neighbours: dict[str, list[int]] = {"upstream": [], "dependant": [], "direct": []}
    for row in await conn.fetch(SQL["read_neighbours"], tenant_id, task_id, limit):
        neighbours[row["kind"]].append(row["id"])
    return neighbours


def _columns(edges: Sequence[NewEdge]) -> tuple[list[int], list[int], list[Condition]]:
    return (
        [edge.dependant for edge in edges],
        [edge.upstream for edge in edges],
        [edge.condition for edge in edges],
    )
