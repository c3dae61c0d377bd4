"""Enforces the overlap policy: earlier occurrences are cancelled, or the new one waits for them.

This comes last in the transaction that stores the new occurrences: from here to the commit
none of the earlier tasks can start or end. All of them are locked in one statement in the order
of their ids, as everywhere, so that transactions do not deadlock.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from duly.errors import Unavailable
from duly.server.recurrence.occurrence_admission import OpenOccurrences
from duly.server.recurrence.occurrences import NewOccurrence, edges_by_tenant
from duly.store.database import Connection
from duly.store.tasks import edges, schedules, tasks


class OpenIds(msgspec.Struct, frozen=True):
    """The ids of a schedule's tasks and graphs that have not ended."""

    tasks: Sequence[int]
    graphs: Sequence[int]


async def read_open(conn: Connection, ids: Mapping[int, OpenIds]) -> dict[int, OpenOccurrences]:
    """Return the open occurrences by schedule, graphs expanded to their open tasks."""
    graphs = {graph for open_ids in ids.values() for graph in open_ids.graphs}
    open_tasks = await schedules.read_live_tasks_of_graphs(conn, graphs) if graphs else {}
    occurrences = {}
    for schedule, open_ids in ids.items():
        open_graphs = [open_tasks[graph] for graph in open_ids.graphs if graph in open_tasks]
        graph_tasks = [task for graph in open_graphs for task in graph]
        occurrences[schedule] = OpenOccurrences(
            len(open_ids.tasks) + len(open_graphs), [*open_ids.tasks, *graph_tasks]
        )
    return occurrences


async def enforce(
    conn: Connection, new: Iterable[NewOccurrence], replaced: Mapping[int, Sequence[int]]
) -> dict[int, int | None]:
    """Queue new occurrences behind earlier ones, and cancel the replaced tasks, given by tenant.

    Return the tasks that were cancelled, each with the incarnation that runs it, if any.
    """
    queue_edges = edges_by_tenant(new, NewOccurrence.queue_edges)
    upstreams = {edge.upstream for tenant_edges in queue_edges.values() for edge in tenant_edges}
    locked = upstreams.union(*replaced.values())
    if not locked:
        return {}
    await schedules.lock_tasks(conn, sorted(locked))
    cancelled: dict[int, int | None] = {}
    for tenant_id, ids in replaced.items():
        cancelled |= await tasks.request_cancel(conn, tenant_id, ids)
    for tenant_id, tenant_edges in queue_edges.items():
        if await edges.attach(conn, tenant_id, tenant_edges):
            raise Unavailable("An earlier occurrence that this one waits for no longer exists.")
    return cancelled
