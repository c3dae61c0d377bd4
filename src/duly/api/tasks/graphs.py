"""Graphs: tasks that are submitted as a whole, and what is around a task."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.body import claim_memory, read_body
from duly.api.many_tasks import read_graph
from duly.api.query import query_of
from duly.api.rate_headers import with_rate
from duly.api.reading import id_of, not_found, read_task, reading
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.api.shapes import dependencies
from duly.api.tasks import BATCH_PATIENCE, ONE, idempotency_key
from duly.model.graph import Dependency
from duly.model.graph_request import GraphRequest
from duly.model.task import FINAL, Status, TaskSpec
from duly.server.offload import collector_paused, offload
from duly.store import edges, wishes
from duly.store.edges import GraphTask
from duly.store.wishes import WishKind

MOST = 1000
"""How many tasks of a graph are told at once."""


class GraphIds(msgspec.Struct, frozen=True):
    """The ids of a graph and of its tasks, by their refs."""

    id: str
    ids: dict[str, str]


class GraphPart(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a part of a graph."""

    id: str
    ref: str | None
    name: str | None
    status: Status
    depends_on: list[str | Dependency]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph: where its tasks are, and the first of them, upstreams before dependants."""

    id: str
    name: str | None
    tenant: str
    user: str | None
    status: Status
    submitted_at: datetime
    wish: WishKind | None
    counts: dict[str, int]
    tasks: list[GraphPart]
    more: bool


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What a task depends on and what depends on it, directly or by others."""

    id: str
    graph: str | None
    dependencies: list[str]
    dependents: list[str]
    tasks: list[GraphPart]
    more: bool


PATH = ["/v1/graphs/{id}"]


@route(
    "POST",
    ["/v1/graphs"],
    "Submit a graph of tasks",
    access=Access.SUBMIT,
    takes=GraphRequest,
    takes_key=True,
    gives=GraphIds,
    statuses=(201,),
    errors=(409, 413, 422, 429),
)
async def submit_graph(request: Request) -> Response:
    """Store all of the tasks or none; a key that was seen before gives the same ids."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    body = await read_body(request, parts.settings.requests.batch_limit)
    key = idempotency_key(request)
    with collector_paused(len(body)):
        answer = await _store(request, body, key)
    return with_rate(answer, parts, credential)


async def _store(request: Request, body: bytes, key: str | None) -> Response:
    parts, credential = parts_of(request), credential_of(request)
    claim = partial(claim_memory, request)
    name, specs = await read_graph(body, credential, parts.settings.requests, claim)
    storing = parts.submitter.submit_graph(credential, name, specs, key=key)
    graph, ids = await parts.timeouts.writing(storing, BATCH_PATIENCE)
    return await offload(len(ids), _graph_ids, graph, specs, ids)


def _graph_ids(graph: int, specs: Sequence[TaskSpec], ids: Sequence[int]) -> Response:
    """Tell the ids of a graph and of its tasks by their refs."""
    named = {spec.ref or "": str(task) for spec, task in zip(specs, ids, strict=True)}
    return as_json(GraphIds(str(graph), named), 201)


@route("GET", PATH, "Look at a graph", access=Access.READ, gives=Graph, errors=(404,))
async def get_graph(request: Request) -> Response:
    """Return where the tasks of a graph are, and the first thousand of them."""
    parts, credential = parts_of(request), credential_of(request)
    graph_id = id_of(request, "graph")
    query_of(request)
    async with reading(parts, credential) as conn:
        found = await edges.read_graph(conn, credential.tenant_id, graph_id, limit=MOST)
        wish = await wishes.read_kind(conn, credential.tenant_id, graph_id)
    if found is None:
        raise not_found("graph", graph_id)
    return as_json(
        Graph(
            id=str(graph_id),
            name=found.name,
            tenant=credential.tenant,
            user=found.user,
            status=_status(found.counts.keys()),
            submitted_at=found.submitted_at,
            wish=wish,
            counts={status.value: count for status, count in found.counts.items()},
            tasks=[_part(task) for task in found.tasks],
            more=found.size > MOST,
        )
    )


def _status(statuses: Iterable[Status]) -> Status:
    """Return the status of a whole: running until all have ended, then the worst of their ends."""
    seen = set(statuses)
    if seen - FINAL:
        return Status.RUNNING if seen - {Status.PAUSED} - FINAL else Status.PAUSED
    for status in (Status.FAILED, Status.CANCELLED):
        if status in seen:
            return status
    return Status.DONE


@route(
    "GET",
    [f"{path}/graph" for path in ONE],
    "Look at what a task depends on, and what depends on it",
    access=Access.READ,
    gives=Around,
    errors=(404,),
)
async def get_around(request: Request) -> Response:
    """Return the tasks around a task, directly or by others, up to a thousand on either side."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    async with reading(parts, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
        around = await edges.read_around(conn, credential.tenant_id, task_id, limit=MOST + 1)
        before, after = around["upstream"], around["dependant"]
        ids = sorted({*before[:MOST], task_id, *after[:MOST]})
        found = await edges.read_tasks(conn, credential.tenant_id, ids)
    return as_json(
        Around(
            id=str(task_id),
            graph=None if view.graph_id is None else str(view.graph_id),
            dependencies=[one.task for one in view.depends_on],
            dependents=[str(one) for one in around["direct"][:MOST]],
            tasks=[_part(task) for task in found],
            more=max(len(before), len(after)) > MOST,
        )
    )


def _part(task: GraphTask) -> GraphPart:
    return GraphPart(
        id=str(task.id),
        ref=task.ref,
        name=task.name,
        status=task.status,
        depends_on=dependencies(task.depends_on),
    )


HANDLERS = [submit_graph, get_graph, get_around]
