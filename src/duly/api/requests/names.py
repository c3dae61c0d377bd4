"""Finds schedules and graphs by the id or the name in the path.

Names need not be unique, so a name selects an object only where that is unambiguous. Text of
digits is always an id.
"""

from starlette.requests import Request

from duly.api.requests.lookups import ID_PATTERN, id_of, not_found, tenant_connection
from duly.api.routes import components_of, credential_of
from duly.errors import Conflict
from duly.model.requests.texts import check_text
from duly.store.tasks import edges, schedules

MAX_IDS_NAMED = 5
"""Ids of objects with the same name that an error lists."""
MAX_GRAPHS_OF_NAME = 100
"""The latest graphs of a name that are considered."""


async def schedule_id_of(request: Request) -> int:
    """Return the id of the schedule in the path; a name must be that of a single schedule."""
    text: str = request.path_params["id"]
    if ID_PATTERN.fullmatch(text):
        return id_of(request, "schedule")
    credential, name = credential_of(request), check_text(text, "id")
    async with tenant_connection(components_of(request), credential) as conn:
        ids = await schedules.ids_by_name(conn, credential.tenant_id, name, limit=MAX_IDS_NAMED + 1)
    if not ids:
        raise not_found("schedule", text)
    if len(ids) > 1:
        raise _ambiguous("schedules", f"are named {name[:60]!r}", ids)
    return ids[0]


async def graph_id_of(request: Request, *, to_change: bool) -> int:
    """Return the id of the graph in the path; a name is that of the latest graph.

    To change it, no other graph of that name may be live.
    """
    text: str = request.path_params["id"]
    if ID_PATTERN.fullmatch(text):
        return id_of(request, "graph")
    credential, name = credential_of(request), check_text(text, "id")
    async with tenant_connection(components_of(request), credential) as conn:
        graphs = await edges.graphs_by_name(
            conn, credential.tenant_id, name, limit=MAX_GRAPHS_OF_NAME if to_change else 1
        )
    if not graphs:
        raise not_found("graph", text)
    live = [graph_id for graph_id, is_live in graphs.items() if is_live]
    if to_change and len(live) > 1:
        raise _ambiguous("graphs", f"named {name[:60]!r} have not ended", live)
    return live[0] if to_change and live else next(iter(graphs))


def _ambiguous(kind: str, predicate: str, ids: list[int]) -> Conflict:
    listed = ", ".join(map(str, ids[:MAX_IDS_NAMED]))
    is_more = len(ids) > MAX_IDS_NAMED
    return Conflict(
        f"{'More than ' if is_more else ''}{min(len(ids), MAX_IDS_NAMED)} {kind} {predicate}: "
        f"{listed}{', …' if is_more else ''}. Give the ID of one.",
        ids=[str(graph_id) for graph_id in ids[:MAX_IDS_NAMED]],
    )
