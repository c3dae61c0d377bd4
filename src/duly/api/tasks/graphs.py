"""Routes for graphs: submit one as a whole, and read its tasks or a task's dependencies."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.api.auth import Access
from duly.api.limits.rate_headers import with_rate_headers
from duly.api.requests.batch_decoding import read_graph
from duly.api.requests.body import claim_memory, read_body
from duly.api.requests.lookups import id_of, not_found, read_task, tenant_connection
from duly.api.requests.names import graph_id_of
from duly.api.requests.query import query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.task_shapes import dependencies
from duly.api.tasks.tasks import BATCH_TIMEOUT_SECONDS, TASK_PATHS, idempotency_key
from duly.model.graph import Dependency
from duly.model.requests.graph_request import GraphRequest
from duly.model.task import FINAL_STATUSES, Status, TaskSpec
from duly.server.admission.batches import StoredBatch
from duly.server.offload import collector_paused, offload
from duly.store.tasks import edges, graph_operations
from duly.store.tasks.edges import GraphTask
from duly.store.tasks.graph_operations import OperationKind

MAX_TASKS_LISTED = 1000
"""Tasks of a graph in one response."""


class GraphIds(msgspec.Struct, frozen=True):
    """The id of a graph, and the ids of its tasks by ref."""

    id: str
    ids: dict[str, str]


class GraphPart(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a graph."""

    id: str
    ref: str | None
    name: str | None
    status: Status
    depends_on: list[str | Dependency]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph: the number of its tasks by status, and the first tasks, upstream ones first."""

    id: str
    name: str | None
    tenant: str
    user: str | None
    status: Status
    submitted_at: datetime
    pending_operation: OperationKind | None
    counts: dict[str, int]
    tasks: list[GraphPart]
    more: bool


class DependencyGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream and downstream tasks of a task, direct and transitive."""

    id: str
    graph: str | None
    dependencies: list[str]
    dependents: list[str]
    tasks: list[GraphPart]
    more: bool


GRAPH_PATH = ["/v1/graphs/{id}"]


@route(
    "POST",
    ["/v1/graphs"],
    "Submit a graph of tasks",
    access=Access.SUBMIT,
    request_body=GraphRequest,
    accepts_idempotency_key=True,
    response_body=GraphIds,
    statuses=(201, 200),
    errors=(409, 413, 422, 429),
)
async def submit_graph(request: Request) -> Response:
    """Submit a graph, all of its tasks or none.

    A repeated idempotency key returns the same ids and 200.
    """
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await read_body(request, components.settings.requests.batch_limit)
    key = idempotency_key(request)
    with collector_paused(len(body)):
        response = await _submit_body(request, body, key)
    return with_rate_headers(response, components, credential)


async def _submit_body(request: Request, body: bytes, key: str | None) -> Response:
    components, credential = components_of(request), credential_of(request)
    claim = partial(claim_memory, request)
    name, specs = await read_graph(body, credential, components.settings.requests, claim)
    submission = components.submitter.submit_graph(credential, name, specs, key=key)
    graph_id, batch = await components.timeouts.writing(submission, BATCH_TIMEOUT_SECONDS)
    return await offload(len(specs), _ids_response, graph_id, specs, batch)


def _ids_response(graph_id: int, specs: Sequence[TaskSpec], batch: StoredBatch) -> Response:
    ids = {spec.ref or "": str(task_id) for spec, task_id in zip(specs, batch.ids, strict=True)}
    return as_json(GraphIds(str(graph_id), ids), 201 if batch.created else 200)


@route("GET", GRAPH_PATH, "Get a graph", access=Access.READ, response_body=Graph, errors=(404,))
async def get_graph(request: Request) -> Response:
    """Get a graph by its id, or the latest of a name.

    It has the number of its tasks by status, and the first thousand tasks.
    """
    components, credential = components_of(request), credential_of(request)
    graph_id = await graph_id_of(request, to_change=False)
    query_of(request)
    async with tenant_connection(components, credential) as conn:
        graph = await edges.read_graph(conn, credential.tenant_id, graph_id, limit=MAX_TASKS_LISTED)
        pending_operation = await graph_operations.read_kind(conn, credential.tenant_id, graph_id)
    if graph is None:
        raise not_found("graph", graph_id)
    return as_json(
        Graph(
            id=str(graph_id),
            name=graph.name,
            tenant=credential.tenant,
            user=graph.user,
            status=_status(graph.counts.keys()),
            submitted_at=graph.submitted_at,
            pending_operation=pending_operation,
            counts={status.value: count for status, count in graph.counts.items()},
            tasks=[_graph_part(task) for task in graph.tasks],
            more=graph.size > MAX_TASKS_LISTED,
        )
    )


def _status(statuses: Iterable[Status]) -> Status:
    """Return the status of a graph: running until all tasks are final, then the worst of them."""
    present = set(statuses)
    if present - FINAL_STATUSES:
        return Status.RUNNING if present - {Status.PAUSED} - FINAL_STATUSES else Status.PAUSED
    for status in (Status.FAILED, Status.CANCELLED):
        if status in present:
            return status
    return Status.DONE


@route(
    "GET",
    [f"{path}/graph" for path in TASK_PATHS],
    "Get the upstream and downstream tasks of a task",
    access=Access.READ,
    response_body=DependencyGraph,
    errors=(404,),
)
async def get_task_graph(request: Request) -> Response:
    """Get the direct and transitive dependencies of a task, up to a thousand in each direction."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query_of(request)
    async with tenant_connection(components, credential) as conn:
        view = await read_task(conn, credential.tenant_id, task_id)
        neighbours = await edges.read_neighbours(
            conn, credential.tenant_id, task_id, limit=MAX_TASKS_LISTED + 1
        )
        upstream, downstream = neighbours["upstream"], neighbours["dependant"]
        ids = sorted({*upstream[:MAX_TASKS_LISTED], task_id, *downstream[:MAX_TASKS_LISTED]})
        tasks = await edges.read_tasks(conn, credential.tenant_id, ids)
    return as_json(
        DependencyGraph(
            id=str(task_id),
            graph=None if view.graph_id is None else str(view.graph_id),
            dependencies=[dependency.task for dependency in view.depends_on],
            dependents=[str(dependent) for dependent in neighbours["direct"][:MAX_TASKS_LISTED]],
            tasks=[_graph_part(task) for task in tasks],
            more=max(len(upstream), len(downstream)) > MAX_TASKS_LISTED,
        )
    )


def _graph_part(task: GraphTask) -> GraphPart:
    return GraphPart(
        id=str(task.id),
        ref=task.ref,
        name=task.name,
        status=task.status,
        depends_on=dependencies(task.depends_on),
    )


HANDLERS = [submit_graph, get_graph, get_task_graph]
