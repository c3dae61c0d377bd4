"""Sees to what of a schedule has not ended when it fires again: cancels it, or waits for it.

In the transaction that stores what is new, and last in it: from here to the commit none of
these tasks can start or end. All of them are locked at once, in the order of their ids, as
everybody does who locks several.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from duly.errors import Unavailable
from duly.server.drafts import Open
from duly.server.occurrences import Occurrence, by_tenant
from duly.store import edges, schedules, tasks
from duly.store.database import Connection


class Live(msgspec.Struct, frozen=True):
    """The tasks and graphs of a schedule that had not ended when they were looked at."""

    tasks: Sequence[int]
    graphs: Sequence[int]


async def read_open(conn: Connection, live: Mapping[int, Live]) -> dict[int, Open]:
    """Return by schedule what has not ended, down to the tasks of graphs."""
    graphs = {graph for one in live.values() for graph in one.graphs}
    parts = await schedules.read_live_parts(conn, graphs) if graphs else {}
    found = {}
    for schedule, one in live.items():
        graphs_of = [parts[graph] for graph in one.graphs if graph in parts]
        inner = [task for graph in graphs_of for task in graph]
        found[schedule] = Open(len(one.tasks) + len(graphs_of), [*one.tasks, *inner])
    return found


async def settle(
    conn: Connection, made: Iterable[Occurrence], cancelled: Mapping[int, Sequence[int]]
) -> dict[int, int | None]:
    """Let what was made wait for what is ahead of it, and cancel tasks, which come by tenant.

    Return those of the cancelled that were live, with the incarnation that runs each, if any.
    """
    waits = by_tenant(made, Occurrence.outer_edges)
    ahead = {edge.upstream for edges_of in waits.values() for edge in edges_of}
    locked = ahead.union(*cancelled.values())
    if not locked:
        return {}
    await schedules.lock_tasks(conn, sorted(locked))
    found: dict[int, int | None] = {}
    for tenant_id, ids in cancelled.items():
        found |= await tasks.request_cancel(conn, tenant_id, ids)
    for tenant_id, edges_of in waits.items():
        if await edges.attach(conn, tenant_id, edges_of):
            raise Unavailable("What an occurrence is to wait for is not known any more.")
    return found
